"""The demo agent with tools that wait at the test's gate: in Oslo, after each step of a picture, at the restaurant."""

import os
from pathlib import Path

from callboard import Agent, Skill, ToolContext, ToolError, register, tool
from callboard.models import ScriptedModel
from examples.demo import IMAGE_STEPS, demo_script
from tests.gates import wait_at_gate

FOLDER = Path(os.environ["CALLBOARD_DATA_DIR"])


@tool
async def get_weather(city: str, seconds: float) -> str:
    """Look up today's weather in a city.

    Args:
        city: The city's name.
        seconds: Not used.
    """
    if city == "Oslo":
        await wait_at_gate(FOLDER)
    return f"{city}: clear"


@tool
async def generate_image(context: ToolContext, prompt: str, seconds: float) -> str:
    """Paint a picture, step by step.

    Args:
        prompt: What the picture shows.
        seconds: Not used.
    """
    for position, step in enumerate(IMAGE_STEPS):
        await context.status("processing", step, progress=100 * position / len(IMAGE_STEPS))
        await wait_at_gate(FOLDER)
    return f"A picture of {prompt}, painted in {len(IMAGE_STEPS)} steps."


@tool
async def book_table(restaurant: str, guests: int, time: str, seconds: float) -> str:
    """Book a table, in vain.

    Args:
        restaurant: The restaurant's name.
        guests: How many people come.
        time: When, as HH:MM.
        seconds: Not used.
    """
    await wait_at_gate(FOLDER)
    raise ToolError(f"{restaurant} is fully booked tonight")


tools = Skill("held", "Waits at the gate.", tools=(get_weather, generate_image, book_table))
register(
    Agent("held", "The demo, held at a gate.", (tools,), name="Held", model=ScriptedModel(demo_script, name="demo"))
)
