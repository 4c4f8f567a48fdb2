"""The agent of the restarts' tests: tells a story that goes on once the test opens the gate."""

import os
from pathlib import Path

from callboard import Agent, Skill, ToolContext, register, tool
from tests.gates import wait_at_gate


@tool
async def note(word: str) -> str:
    """Note a word down.

    Args:
        word: The word.
    """
    return f"noted: {word}"


@tool
async def listen_at_the_gate(context: ToolContext, subject: str) -> str:
    """Wait until the gate is open.

    Args:
        subject: What to listen for.
    """
    await context.status("processing", "Listening", progress=10)
    await wait_at_gate(Path(os.environ["CALLBOARD_DATA_DIR"]))
    return f"heard: {subject}"


@tool(requires_confirmation=True)
async def sign(name: str) -> str:
    """Sign the story.

    Args:
        name: With which name.
    """
    return f"signed: {name}"


telling = Skill("telling", "Notes, listens and signs.", tools=(note, listen_at_the_gate, sign))
register(Agent("narrator", "Tells a story.", (telling,)))
