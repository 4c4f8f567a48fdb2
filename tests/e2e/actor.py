"""The agents of the endings' tests, in a file as users write theirs: `CALLBOARD_AGENTS` names it."""

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

from callboard import Agent, Skill, ToolContext, register, tool
from callboard.agents import RunContext
from callboard.models import OpenAICompatible, user_text
from callboard.models.model import ModelRequest
from callboard_protocol import Event, Message, ToolCallStart

PATIENCE_SECONDS = 2.0
GRIND_SECONDS = 20.0
STEP_SECONDS = 0.05


@tool
async def note(word: str) -> str:
    """Note a word down.

    Args:
        word: The word.
    """
    return f"noted: {word}"


@tool
async def search(context: ToolContext, subject: str) -> str:
    """Search until somebody stops it.

    Args:
        subject: What to look for.
    """
    await context.status("processing", "Searching", progress=10)
    await asyncio.Event().wait()
    return subject


@tool
async def walk(context: ToolContext, subject: str) -> str:
    """Walk until somebody stops it, and report each step.

    Args:
        subject: Where to walk.
    """
    for step in itertools.count(1):
        await context.status("processing", f"Step {step}")
        await asyncio.sleep(STEP_SECONDS)
    return subject


@tool
def grind(subject: str) -> str:
    """Work in a thread that nobody can end, and ask nobody whether to stop.

    Args:
        subject: What to grind.
    """
    threading.Event().wait(GRIND_SECONDS)
    return subject


@dataclass(frozen=True, slots=True)
class Clumsy:
    """Raises in the middle of a call."""

    agent_id: str = "clumsy"
    name: str = "Clumsy"
    description: str = "Stumbles in the middle of a call."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        if "hello" in user_text(ModelRequest(context.messages)):
            yield Message(content="Hello again.")
            return
        yield Message(content="Once upon a time. ")
        yield ToolCallStart(tool_call_id="open", tool_name="search", tool_args={"subject": "owls"})
        raise RuntimeError("over its own feet")


@tool(requires_confirmation=True)
async def sell(play: str) -> str:
    """Sell a ticket; the user is asked first.

    Args:
        play: The play's name.
    """
    return f"A seat for {play} is sold."


acting = Skill("acting", "Notes and searches.", tools=(note, search, walk, grind, sell))
impatient = OpenAICompatible(
    os.environ["CALLBOARD_MODEL_BASE_URL"], model="scripted", timeout_seconds=PATIENCE_SECONDS, max_retries=0
)
register(Agent("actor", "Does what the script says.", (acting,)))
register(Agent("impatient", "The same, and waits for nobody.", (acting,), model=impatient))
register(Clumsy())
