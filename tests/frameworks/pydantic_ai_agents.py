"""Agents of pydantic-ai for its own tests."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from callboard.agents import AgentLike
from callboard.frameworks.pydantic_ai import from_pydantic_ai
from tests.frameworks.stage import openai_client
from tests.frameworks.toolbox import Toolbox


@dataclass(frozen=True)
class Made:
    """An agent that a test creates with its own model."""

    make: Callable[[OpenAIChatModel], AgentLike]

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with openai_client(base_url) as client:
            yield self.make(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)))


def solo(*tools: Any, **fields: Any) -> Made:
    """An agent with these tools."""
    return Made(lambda model: from_pydantic_ai(Agent(model, name="agent", tools=tools, **fields)))


def asks_another(*tools: Any) -> Made:
    """An agent with a tool that runs another agent, which has these tools."""

    def make(model: OpenAIChatModel) -> AgentLike:
        other = Agent(model, name="other", tools=tools)

        async def ask_other(task: str) -> str:
            """Asks the other agent."""
            return (await other.run(task)).output

        return from_pydantic_ai(Agent(model, name="agent", tools=[ask_other]))

    return Made(make)


def asks_another_and_waits(*tools: Any) -> Made:
    """The same, with pydantic-ai's synchronous method."""

    def make(model: OpenAIChatModel) -> AgentLike:
        other = Agent(model, name="other", tools=tools)

        def ask_other(task: str) -> str:
            """Asks the other agent."""
            return other.run_sync(task).output

        return from_pydantic_ai(Agent(model, name="agent", tools=[ask_other]))

    return Made(make)


add = Toolbox().plain("add")
