"""Agents of Agno."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from callboard.agents import AgentLike
from tests.frameworks import stage
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import PICTURE, Toolbox


@asynccontextmanager
async def models_at(base_url: str) -> AsyncIterator[Callable[[], Any]]:
    from agno.models.openai import OpenAIChat

    async with openai_client(base_url) as client:
        yield lambda: OpenAIChat(id="m", async_client=client)


Made = partial(stage.Made, model_at=models_at)


def with_tools(*tools: Any) -> stage.Made:
    return solo(*tools, instructions=INSTRUCTIONS)


def tool_named(name: str, toolbox: Toolbox) -> Any:
    from agno.media import Image
    from agno.tools import tool
    from agno.tools.function import ToolResult

    async def paint(what: str) -> ToolResult:
        """Paints."""
        return ToolResult(content=f"{what}, painted", images=[Image(content=PICTURE, mime_type="image/png")])

    return paint if name == "paint" else tool(requires_confirmation=name == "wipe")(toolbox.plain(name))


def solo(*tools: Any, **fields: Any) -> stage.Made:
    """An agent with these tools."""

    def make(model: Callable[[], Any]) -> AgentLike:
        from agno.agent import Agent

        from callboard.frameworks.agno import from_agno

        return from_agno(Agent(id="agent", model=model(), tools=[*tools], telemetry=False, **fields))

    return Made(make)


def crew(*tools: Any, **fields: Any) -> stage.Made:
    """A team whose member has these tools."""

    def make(model: Callable[[], Any]) -> AgentLike:
        from agno.agent import Agent
        from agno.team import Team

        from callboard.frameworks.agno import from_agno

        adder = Agent(id="adder", name="Adder", role="Adds", model=model(), tools=[*tools], telemetry=False)
        return from_agno(Team(id="agent", name="Crew", members=[adder], model=model(), telemetry=False, **fields))

    return Made(make)


def asks_another(*tools: Any, way: str) -> stage.Made:
    """An agent with a tool that runs another agent, which has these tools."""

    def make(model: Callable[[], Any]) -> AgentLike:
        from agno.agent import Agent

        other = Agent(id="other", name="Other", model=model(), tools=[*tools], telemetry=False)

        async def awaits(task: str) -> str:
            return str((await other.arun(task)).content)

        async def passes_events_on(task: str) -> AsyncIterator[Any]:
            async for event in other.arun(task, stream=True, stream_events=True):
                yield event

        def in_a_thread(task: str) -> str:
            return str(other.run(task).content)

        def in_a_thread_streamed(task: str) -> str:
            return "".join(str(event.content) for event in other.run(task, stream=True))

        def in_a_thread_passes_events_on(task: str) -> Iterator[Any]:
            yield from other.run(task, stream=True, stream_events=True)

        async def blocks(task: str) -> str:
            return in_a_thread(task)

        ways = (awaits, passes_events_on, in_a_thread, in_a_thread_streamed, in_a_thread_passes_events_on, blocks)
        [ask_other] = [one for one in ways if one.__name__ == way]
        ask_other.__name__ = "ask_other"
        return solo(ask_other).make(model)

    return Made(make)


add = Toolbox().plain("add")
