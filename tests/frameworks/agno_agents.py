"""Agents of Agno for its own tests."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agno.agent import Agent
from agno.models.openai import OpenAIChat

from callboard._agents import AgentLike
from callboard.frameworks.agno import from_agno
from tests.fakes.openai_server import Script
from tests.frameworks.scenario import Scenario
from tests.frameworks.stage import Deviation, openai_client
from tests.frameworks.toolbox import Toolbox

Make = Callable[[Callable[[], OpenAIChat]], AgentLike]


@dataclass(frozen=True)
class Made:
    """An agent that a test makes with models of its own."""

    make: Make
    name: str = "made"
    deviations: dict[str, Deviation] = field(default_factory=dict)

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with openai_client(base_url) as client:
            yield self.make(lambda: OpenAIChat(id="m", async_client=client))


def solo(*tools: Any, **fields: Any) -> Made:
    """One agent with these tools."""
    return Made(lambda model: from_agno(Agent(id="agent", model=model(), tools=[*tools], telemetry=False, **fields)))


def scenario(script: Script, **fields: Any) -> Scenario:
    return Scenario("of Agno's own", script, [], **fields)


add = Toolbox().plain("add")
