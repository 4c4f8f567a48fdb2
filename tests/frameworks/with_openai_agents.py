"""The OpenAI Agents SDK."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    RunConfig,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
)

from callboard.agents import AgentLike
from callboard.frameworks.openai_agents import from_openai_agents
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


@asynccontextmanager
async def agent(base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
    """`from_openai_agents(agents.Agent(…))`."""
    functions = [_tool(name, toolbox) for name in tools]
    async with openai_client(base_url) as client:
        model = OpenAIChatCompletionsModel("m", client)
        made = Agent("agent", model=model, instructions=INSTRUCTIONS, tools=[*functions])
        yield from_openai_agents(made, run_config=RunConfig(tracing_disabled=True))


def _tool(name: str, toolbox: Toolbox) -> FunctionTool:
    if name == "paint":
        return function_tool(_paint, name_override="paint")
    return function_tool(toolbox.plain(name), needs_approval=name == "wipe")


async def _paint(what: str) -> list[ToolOutputText | ToolOutputImage]:
    """Paints."""
    return [ToolOutputText(text=f"{what}, painted"), ToolOutputImage(image_url=PICTURE_URL)]
