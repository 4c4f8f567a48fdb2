"""The file that `CALLBOARD_AGENTS` names: agents of runs of which there are many at one time.

The question is how many pieces, or calls, there are to be.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from callboard import Agent, Skill, register, tool
from callboard.agents import RunContext
from callboard_protocol import Event, Message
from tests.bench import story

PACE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Scripted:
    agent_id: str
    script: Callable[[RunContext], AsyncIterator[Event]]
    description: str = "Says what the benchmark wants."

    @property
    def name(self) -> str:
        return self.agent_id

    def run(self, context: RunContext) -> AsyncIterator[Event]:
        return self.script(context)


def _count(context: RunContext) -> int:
    return int(str(context.messages[-1]["content"]))


async def paced(context: RunContext) -> AsyncIterator[Event]:
    """Says when each piece was said, by a clock that all processes of this machine share."""
    for _ in range(_count(context)):
        yield Message(content=f"{time.monotonic()} ")
        await asyncio.sleep(PACE_SECONDS)


async def calling(context: RunContext) -> AsyncIterator[Event]:
    """Calls as fast as it is let."""
    for number in range(_count(context)):
        for event in story.call(number, statuses=0):
            yield event


async def silent(_: RunContext) -> AsyncIterator[Event]:
    """Says a word, and then nothing for ever."""
    yield Message(content="Hello.")
    await asyncio.Event().wait()


@tool
async def look(shelf: int) -> str:
    """Look what stands on a shelf."""
    return f"shelf {shelf}: salt"


for script in (paced, calling, silent):
    register(Scripted(script.__name__, script))
register(Agent("errand", skills=[Skill("shelves", "Look.", tools=[look])]))
