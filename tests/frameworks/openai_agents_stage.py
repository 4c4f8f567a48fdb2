"""Agents of the OpenAI Agents SDK as its own tests make them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agents import Agent, Model, OpenAIChatCompletionsModel, RunConfig, function_tool

from callboard.agents import AgentLike
from callboard.frameworks.openai_agents import from_openai_agents
from tests.fakes.openai_server import Body
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import Toolbox

UNTRACED = RunConfig(tracing_disabled=True)

add = function_tool(Toolbox().plain("add"))

Make = Callable[[Model], AgentLike]


@dataclass(frozen=True)
class Made:
    """An agent that a test creates with its own model."""

    make: Make

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with openai_client(base_url) as client:
            yield self.make(OpenAIChatCompletionsModel("m", client))


def solo(*tools: Any, **fields: Any) -> Made:
    """An agent with these tools."""
    return Made(
        lambda model: from_openai_agents(Agent("agent", model=model, tools=[*tools], **fields), run_config=UNTRACED)
    )


def offered(body: Body) -> list[str]:
    """The names of the tools that a request offers."""
    return [one["function"]["name"] for one in body.get("tools") or ()]
