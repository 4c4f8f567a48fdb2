"""The file that `CALLBOARD_AGENTS` names: agents that tell the story as fast as they can, and one that echoes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from callboard import register
from callboard.agents import RunContext
from callboard_protocol import Event, Message
from tests.bench import story

ECHOES = 300
# As fast as a quick model writes: an answer that is over at once streams beside nobody.
ECHO_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Storyteller:
    agent_id: str
    tell: Callable[[int], Iterator[Event]]
    description: str = "Tells the story of the benchmark."

    @property
    def name(self) -> str:
        return self.agent_id

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        for event in self.tell(int(str(context.messages[-1]["content"]))):
            yield event


@dataclass(frozen=True, slots=True)
class Echo:
    """Says again and again what it was told, each time with a number."""

    agent_id: str = "echo"
    name: str = "Echo"
    description: str = "Says what it is told."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        marker = str(context.messages[-1]["content"])
        for number in range(ECHOES):
            yield Message(content=f"{marker} {number}\n")
            await asyncio.sleep(ECHO_SECONDS)


register(Echo())
for agent in (Storyteller("text", story.text_only), Storyteller("calls", story.with_calls)):
    register(agent)
