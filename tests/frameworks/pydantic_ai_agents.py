"""Agents of pydantic-ai."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from callboard.agents import AgentLike
from tests.frameworks import stage
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import PICTURE, Toolbox


@asynccontextmanager
async def model_at(base_url: str) -> AsyncIterator[Any]:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with openai_client(base_url) as client:
        yield OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))


Made = partial(stage.Made, model_at=model_at)


def with_tools(*tools: Any) -> stage.Made:
    return solo(*tools, instructions=INSTRUCTIONS)


def tool_named(name: str, toolbox: Toolbox) -> Any:
    from pydantic_ai import BinaryContent, Tool, ToolReturn

    async def paint(what: str) -> ToolReturn:
        """Paints."""
        return ToolReturn(f"{what}, painted", content=[BinaryContent(PICTURE, media_type="image/png")])

    return Tool(paint) if name == "paint" else Tool(toolbox.plain(name), requires_approval=name == "wipe")


def solo(*tools: Any, **fields: Any) -> stage.Made:
    """An agent with these tools."""

    def make(model: Any) -> AgentLike:
        from pydantic_ai import Agent

        from callboard.frameworks.pydantic_ai import from_pydantic_ai

        return from_pydantic_ai(Agent(model, name="agent", tools=tools, **fields))

    return Made(make)


def validated(check: Callable[[str], str], **fields: Any) -> stage.Made:
    """An agent that adds, with a check of its answer."""

    def make(model: Any) -> AgentLike:
        from pydantic_ai import Agent

        from callboard.frameworks.pydantic_ai import from_pydantic_ai

        one = Agent(model, name="agent", tools=[add], **fields)
        one.output_validator(check)
        return from_pydantic_ai(one)

    return Made(make)


def asks_another(*tools: Any, way: str) -> stage.Made:
    """An agent with a tool that runs another agent, which has these tools."""

    def make(model: Any) -> AgentLike:
        from pydantic_ai import Agent

        other = Agent(model, name="other", tools=tools)

        async def awaits(task: str) -> str:
            return (await other.run(task)).output

        def in_a_thread(task: str) -> str:
            return other.run_sync(task).output

        [ask_other] = [one for one in (awaits, in_a_thread) if one.__name__ == way]
        ask_other.__name__ = "ask_other"
        return solo(ask_other).make(model)

    return Made(make)


add = Toolbox().plain("add")
