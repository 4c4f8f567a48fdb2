"""The built-in loop, with which all adapters are compared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callboard import Agent, Skill, Tool, ToolResult, tool
from callboard.models import OpenAICompatible
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import Made
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


@asynccontextmanager
async def model_at(base_url: str) -> AsyncIterator[OpenAICompatible]:
    model = OpenAICompatible(base_url, api_key="key", model="m", max_retries=0)
    yield model
    await model.aclose()


def with_tools(*tools: Tool) -> Made:
    skill = Skill("tools", "All there are.", tools=tools)
    return Made(lambda model: Agent("agent", skills=[skill], prompt=INSTRUCTIONS, model=model), model_at)


def tool_named(name: str, toolbox: Toolbox) -> Tool:
    async def paint(what: str) -> ToolResult:
        """Paints."""
        return ToolResult(f"{what}, painted", files=({"type": "image", "url": PICTURE_URL},))

    return tool(paint) if name == "paint" else tool(requires_confirmation=name == "wipe")(toolbox.plain(name))
