"""The demo agent with tools that wait at the test's gate: in Oslo, after each step of a picture, at the restaurant.

The clerk writes two documents by a plan, and waits at the gate before each. The framer mixes a colour, paints two
pictures at once, and then frames many; it waits at the gate at each step.
"""

import base64
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from callboard import Agent, Skill, ToolContext, ToolError, ToolResult, register, tool
from callboard.agents import RunContext
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta, ToolCallDelta, task_answer
from callboard.skills import Planning
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart, ToolStatus, ToolStatusData
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
    Agent("held", "The demo, held at a gate.", (tools,), name="Demo", model=ScriptedModel(demo_script, name="demo"))
)


DOCUMENTS = {
    "letter.md": ("text/markdown", "# Dear stage\n\nThe key is under the third plank."),
    "ledger.csv": ("text/csv", "play,seats\nHamlet,2\n"),
}


@tool
async def write_document(name: str) -> ToolResult:
    """Write a document.

    Args:
        name: The document's name.
    """
    await wait_at_gate(FOLDER)
    kind, content = DOCUMENTS[name]
    url = f"data:{kind};base64,{base64.b64encode(content.encode()).decode()}"
    return ToolResult(f"{name} is written.", files=({"type": "file", "name": name, "url": url},))


def clerk_script(request: ModelRequest) -> Iterator[ModelDelta]:
    """Yield the clerk's next calls: for each document the plan so far and the document, then text."""
    if (answer := task_answer(request)) is not None:
        yield TextDelta(answer)
        return
    written = sum(bool(message.get("tool_calls")) for message in request.messages)
    states = ["completed"] * written + ["in_progress"] + ["pending"] * len(DOCUMENTS)
    steps = [{"content": f"Write {name}", "state": state} for name, state in zip(DOCUMENTS, states, strict=False)]
    if written > len(DOCUMENTS):
        yield TextDelta("Both documents are written.")
        return
    yield ToolCallDelta(index=0, id=f"plan_{written}", name="plan", arguments=json.dumps({"steps": steps}))
    if written < len(DOCUMENTS):
        arguments = json.dumps({"name": list(DOCUMENTS)[written]})
        yield ToolCallDelta(index=1, id=f"write_{written}", name="write_document", arguments=arguments)


writing = Skill("writing", "Writes documents.", tools=(write_document,))
clerk = ScriptedModel(clerk_script, name="clerk")
register(Agent("clerk", "Writes documents.", (writing, Planning()), name="Clerk", model=clerk))


@dataclass(frozen=True, slots=True)
class Framer:
    """Calls one tool once, one twice at once, and one sixty times."""

    agent_id: str = "framer"
    name: str = "Framer"
    description: str = "Paints two pictures and frames many."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        if context.task:
            return
        mixing = context.claim_tool_call_id("mix")
        yield ToolCallStart(tool_call_id=mixing, tool_name="mix", label="mix · blue")
        data = ToolStatusData(status="processing", message="Stirring...", progress=50)
        yield ToolStatus(tool_call_id=mixing, data=data)
        await wait_at_gate(FOLDER)
        yield ToolCallComplete(tool_call_id=mixing, tool_name="mix", result="blue", duration_ms=1_200)
        painted = {context.claim_tool_call_id(what): what for what in ("a cat", "a dog")}
        for call_id, what in painted.items():
            yield ToolCallStart(tool_call_id=call_id, tool_name="paint", label=f"paint · {what}")
        for progress, step in ((10, "Sketching"), (60, "Adding light")):
            for call_id in painted:
                data = ToolStatusData(status="processing", message=step, progress=progress)
                yield ToolStatus(tool_call_id=call_id, data=data)
            await wait_at_gate(FOLDER)
        for call_id, what in painted.items():
            yield ToolCallComplete(
                tool_call_id=call_id, tool_name="paint", result=f"{what}, painted", duration_ms=2_500
            )
        for number in range(60):
            call_id = context.claim_tool_call_id(f"frame {number}")
            yield ToolCallStart(tool_call_id=call_id, tool_name="frame", label=f"frame · picture {number}")
            yield ToolCallComplete(tool_call_id=call_id, tool_name="frame", result="framed", duration_ms=100)
        yield Message(content="All of them are framed.")


register(Framer())
