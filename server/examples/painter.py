"""An agent with a prompt, a tool that reports progress, and skills that come with the server."""

import asyncio

from callboard import Agent, Skill, ToolContext, register, tool
from callboard.skills import Memory, WebSearch


@tool
async def generate_image(context: ToolContext, prompt: str) -> str:
    """Paint a picture.

    Args:
        prompt: A description of the picture.
    """
    for percent in range(0, 100, 10):
        await context.status("processing", "Painting", progress=percent)
        await asyncio.sleep(0.1)
    return f"A picture of {prompt}."


painting = Skill("painting", "Paints pictures.", "You can paint.", tools=(generate_image,))
register(Agent("painter", "Paints what you ask for.", (painting, WebSearch(), Memory()), "You are a painter."))
