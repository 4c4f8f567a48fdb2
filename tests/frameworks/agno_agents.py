"""Agents of Agno for its own tests."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from callboard.agents import AgentLike
from callboard.frameworks.agno import from_agno
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import Toolbox

Make = Callable[[Callable[[], OpenAIChat]], AgentLike]


@dataclass(frozen=True)
class Made:
    """An agent that a test creates with its own models."""

    make: Make

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with openai_client(base_url) as client:
            yield self.make(lambda: OpenAIChat(id="m", async_client=client))


def solo(*tools: Any, **fields: Any) -> Made:
    """An agent with these tools."""
    return Made(lambda model: from_agno(Agent(id="agent", model=model(), tools=[*tools], telemetry=False, **fields)))


def asks_another(*tools: Any, is_generator: bool = False) -> Made:
    """An agent with a tool that runs another agent, which has these tools; a generator passes on its events."""

    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        other = Agent(id="other", model=model(), tools=[*tools], telemetry=False)

        async def ask_other(task: str) -> str:
            """Asks the other agent."""
            return str((await other.arun(task)).content)

        async def pass_on(task: str) -> AsyncIterator[Any]:
            """Asks the other agent."""
            async for event in other.arun(task, stream=True, stream_events=True):
                yield event

        pass_on.__name__ = "ask_other"
        tool: Any = pass_on if is_generator else ask_other
        return from_agno(Agent(id="agent", model=model(), tools=[tool], telemetry=False))

    return Made(make)


def asks_another_and_waits(
    *tools: Any, in_a_thread: bool = True, stream: bool = False, is_generator: bool = False
) -> Made:
    """The same, with Agno's synchronous method."""

    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        other = Agent(id="other", name="Other", model=model(), tools=[*tools], telemetry=False)

        def ask_other(task: str) -> str:
            """Asks the other agent."""
            if stream:
                return "".join(str(event.content) for event in other.run(task, stream=True))
            return str(other.run(task).content)

        async def ask_other_async(task: str) -> str:
            """Asks the other agent."""
            return ask_other(task)

        def pass_on(task: str) -> Iterator[Any]:
            """Asks the other agent."""
            yield from other.run(task, stream=True, stream_events=True)

        ask_other_async.__name__ = pass_on.__name__ = "ask_other"
        tool: Any = ask_other if in_a_thread else ask_other_async
        if is_generator:
            tool = pass_on
        return from_agno(Agent(id="agent", model=model(), tools=[tool], telemetry=False))

    return Made(make)


add = Toolbox().plain("add")
