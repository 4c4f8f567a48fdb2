"""The built-in loop, with which all adapters are compared."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from callboard import Agent, Skill, Tool, ToolResult, tool
from callboard.agents import AgentLike
from callboard.models import OpenAICompatible
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


@asynccontextmanager
async def agent(base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
    """`callboard.Agent`."""
    model = OpenAICompatible(base_url, api_key="key", model="m", max_retries=0)
    skill = Skill("tools", "All there are.", tools=[_tool(name, toolbox) for name in tools])
    yield Agent("agent", skills=[skill], prompt=INSTRUCTIONS, model=model)
    await model.aclose()


def _tool(name: str, toolbox: Toolbox) -> Tool:
    if name == "paint":
        return _paint()
    return tool(requires_confirmation=name == "wipe")(toolbox.plain(name))


def _paint() -> Tool:
    @tool
    async def paint(what: str) -> ToolResult:
        """Paints."""
        return ToolResult(f"{what}, painted", files=({"type": "image", "url": PICTURE_URL},))

    return paint
