"""The agent `careful` in one framework, for tests in which servers are killed.

Its tools write a line to a file for each of their runs. `CALLBOARD_TEST_FRAMEWORK` selects the framework, and
`CALLBOARD_TEST_ON_OWNER_LOSS`, if set, the agent's `on_owner_loss`.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callboard import register
from callboard.agents import AgentLike

URL = os.environ["CALLBOARD_MODEL_BASE_URL"]
RAN = Path(os.environ["CALLBOARD_TEST_RAN"])
OPTIONS: dict[str, Any] = (
    {"on_owner_loss": os.environ["CALLBOARD_TEST_ON_OWNER_LOSS"]}
    if "CALLBOARD_TEST_ON_OWNER_LOSS" in os.environ
    else {}
)


def note(line: str) -> None:
    with RAN.open("a") as file:
        file.write(f"{line}\n")


async def sell(seat: int) -> str:
    """Sell a seat."""
    note(f"sell {seat}")
    return f"Seat {seat} is sold."


async def wait_for_ever(seat: int) -> str:
    """Sell a seat, and never return."""
    note(f"wait {seat}")
    await asyncio.Event().wait()
    return ""


async def refund(seat: int) -> str:
    """Pay a seat back, with the user's approval."""
    note(f"refund {seat}")
    return f"Seat {seat} is paid back."


def of_agno() -> AgentLike:
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat
    from agno.tools import tool

    from callboard.frameworks.agno import from_agno

    model = OpenAIChat(id="m", base_url=URL, api_key="key", max_retries=0)
    asking = tool(requires_confirmation=True)(refund)
    return from_agno(Agent(id="careful", model=model, tools=[sell, wait_for_ever, asking], telemetry=False), **OPTIONS)


def of_pydantic_ai() -> AgentLike:
    from pydantic_ai import Agent, Tool
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from callboard.frameworks.pydantic_ai import from_pydantic_ai

    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=URL, api_key="key"))
    asking = Tool(refund, requires_approval=True)
    return from_pydantic_ai(Agent(model, name="careful", tools=[sell, wait_for_ever, asking]), **OPTIONS)


def of_langgraph() -> AgentLike:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from pydantic import SecretStr

    from callboard.frameworks.langgraph import from_langgraph

    model = ChatOpenAI(model="m", base_url=URL, api_key=SecretStr("key"), max_retries=0)
    asking = HumanInTheLoopMiddleware(interrupt_on={"refund": {"allowed_decisions": ["approve", "reject"]}})
    tools = [tool(sell), tool(wait_for_ever), tool(refund)]
    graph = create_agent(model, tools, middleware=[asking], checkpointer=InMemorySaver(), name="careful")
    return from_langgraph(graph, **OPTIONS)


def of_openai_agents() -> AgentLike:
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, function_tool
    from openai import AsyncOpenAI

    from callboard.frameworks.openai_agents import from_openai_agents

    model = OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=URL, api_key="key", max_retries=0))
    tools = [function_tool(sell), function_tool(wait_for_ever), function_tool(refund, needs_approval=True)]
    agent = Agent("careful", model=model, tools=[*tools])
    return from_openai_agents(agent, run_config=RunConfig(tracing_disabled=True), **OPTIONS)


MAKE: dict[str, Callable[[], AgentLike]] = {
    "Agno": of_agno,
    "pydantic-ai": of_pydantic_ai,
    "LangGraph": of_langgraph,
    "OpenAI Agents": of_openai_agents,
}

register(MAKE[os.environ["CALLBOARD_TEST_FRAMEWORK"]]())
