"""Agno."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agno.agent import Agent
from agno.media import Image
from agno.models.openai import OpenAIChat
from agno.tools import tool
from agno.tools.function import Function, ToolResult

from callboard.agents import AgentLike
from callboard.frameworks.agno import from_agno
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import PICTURE, Toolbox


@asynccontextmanager
async def agent(base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
    """`from_agno(agno.agent.Agent(…))`."""
    functions = [_tool(name, toolbox) for name in tools]
    async with openai_client(base_url) as client:
        model = OpenAIChat(id="m", async_client=client)
        yield from_agno(Agent(id="agent", model=model, tools=[*functions], instructions=INSTRUCTIONS, telemetry=False))


def _tool(name: str, toolbox: Toolbox) -> Function:
    if name == "paint":
        return Function.from_callable(_paint)
    function: Function = tool(requires_confirmation=name == "wipe")(toolbox.plain(name))
    return function


async def _paint(what: str) -> ToolResult:
    """Paints."""
    return ToolResult(content=f"{what}, painted", images=[Image(content=PICTURE, mime_type="image/png")])


_paint.__name__ = "paint"
