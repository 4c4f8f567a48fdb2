"""The OpenAI Agents SDK."""

from collections.abc import AsyncIterator, Mapping, Sequence
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

from callboard._agents import AgentLike
from callboard.frameworks.openai_agents import from_openai_agents
from tests.frameworks.stage import Deviation, openai_client
from tests.frameworks.toolbox import PICTURE_URL, Toolbox


class WithOpenAIAgents:
    """`from_openai_agents(agents.Agent(…))`."""

    name = "OpenAI Agents"
    deviations: Mapping[str, Deviation] = {}

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        functions = [_tool(name, toolbox) for name in tools]
        async with openai_client(base_url) as client:
            model = OpenAIChatCompletionsModel("m", client)
            agent = Agent("agent", model=model, tools=[*functions])
            yield from_openai_agents(agent, run_config=RunConfig(tracing_disabled=True))


def _tool(name: str, toolbox: Toolbox) -> FunctionTool:
    if name == "paint":
        return function_tool(_paint, name_override="paint")
    return function_tool(toolbox.plain(name), needs_approval=name == "wipe")


async def _paint(what: str) -> list[ToolOutputText | ToolOutputImage]:
    """Paints."""
    return [ToolOutputText(text=f"{what}, painted"), ToolOutputImage(image_url=PICTURE_URL)]
