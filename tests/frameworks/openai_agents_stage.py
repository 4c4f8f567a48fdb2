"""Agents of the OpenAI Agents SDK."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from callboard.agents import AgentLike
from tests.fakes.openai_server import Body
from tests.frameworks import stage
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


@asynccontextmanager
async def model_at(base_url: str) -> AsyncIterator[Any]:
    from agents import OpenAIChatCompletionsModel

    async with openai_client(base_url) as client:
        yield OpenAIChatCompletionsModel("m", client)


Made = partial(stage.Made, model_at=model_at)


def with_tools(*tools: Any) -> stage.Made:
    return solo(*tools, instructions=INSTRUCTIONS)


def tool_named(name: str, toolbox: Toolbox) -> Any:
    from agents import ToolOutputImage, ToolOutputText, function_tool

    async def paint(what: str) -> list[ToolOutputText | ToolOutputImage]:
        """Paints."""
        return [ToolOutputText(text=f"{what}, painted"), ToolOutputImage(image_url=PICTURE_URL)]

    return function_tool(paint) if name == "paint" else tool_of(toolbox.plain(name), needs_approval=name == "wipe")


def solo(*tools: Any, **fields: Any) -> stage.Made:
    """An agent with these tools."""

    def make(model: Any) -> AgentLike:
        from agents import Agent

        return serve(Agent("agent", model=model, tools=[*tools], **fields))

    return Made(make)


def serve(agent: Any, **options: Any) -> AgentLike:
    """The agent, or the function that makes one, without the SDK's traces."""
    from agents import RunConfig

    from callboard.frameworks.openai_agents import from_openai_agents

    return from_openai_agents(agent, agent_id="agent", run_config=RunConfig(tracing_disabled=True), **options)


def tool_of(function: Callable[..., Any], **options: Any) -> Any:
    from agents import function_tool

    return function_tool(function, **options)


def asks_another(*tools: Any, way: str) -> stage.Made:
    """An agent with a tool that runs another agent, which has these tools or functions."""

    def make(model: Any) -> AgentLike:
        from agents import Agent, RunConfig, Runner

        other = Agent("Other", model=model, tools=[tool_of(one) if callable(one) else one for one in tools])
        config = RunConfig(tracing_disabled=True)

        async def by_hand(task: str) -> str:
            return str((await Runner.run(other, task, run_config=config)).final_output)

        def in_a_thread(task: str) -> str:
            return str(Runner.run_sync(other, task, run_config=config).final_output)

        ways: dict[str, Callable[[], Any]] = {
            "as_tool": lambda: other.as_tool("ask_other", "Asks."),
            "as_tool_streamed": lambda: other.as_tool("ask_other", "Asks.", on_stream=lambda _: None),
            "by_hand": lambda: tool_of(by_hand, name_override="ask_other"),
            "in_a_thread": lambda: tool_of(in_a_thread, name_override="ask_other"),
        }
        return solo(ways[way]()).make(model)

    return Made(make)


def add() -> Any:
    return tool_of(Toolbox().plain("add"))


def offered(body: Body) -> list[str]:
    """The names of the tools that a request offers."""
    return [one["function"]["name"] for one in body.get("tools") or ()]
