"""pydantic-ai."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Agent, BinaryContent, Tool, ToolReturn
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from callboard.agents import AgentLike
from callboard.frameworks.pydantic_ai import from_pydantic_ai
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import PICTURE, Toolbox


@asynccontextmanager
async def agent(base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
    """`from_pydantic_ai(pydantic_ai.Agent(…))`."""
    functions = [_tool(name, toolbox) for name in tools]
    async with openai_client(base_url) as client:
        model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
        yield from_pydantic_ai(Agent(model, name="agent", instructions=INSTRUCTIONS, tools=functions))


def _tool(name: str, toolbox: Toolbox) -> Tool[Any]:
    if name == "paint":
        return Tool(_paint, name="paint")
    return Tool(toolbox.plain(name), requires_approval=name == "wipe")


async def _paint(what: str) -> ToolReturn:
    """Paints."""
    return ToolReturn(f"{what}, painted", content=[BinaryContent(PICTURE, media_type="image/png")])
