"""Descriptions of frameworks' agents before they run, and notes about unknown facts."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from callboard.frameworks.adapter import MADE_PER_RUN, FrameworkAgent

if TYPE_CHECKING:
    from agents import Agent as OpenAIAgent
    from agents import WebSearchTool, function_tool
    from agno.agent import Agent as AgnoAgent
    from agno.models.openai import OpenAIChat
    from agno.team import Team
    from agno.tools import Toolkit
    from agno.tools import tool as agno_tool
    from langchain.agents import create_agent
    from langchain_core.tools import tool as langchain_tool
    from langchain_openai import ChatOpenAI
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.test import TestModel

    from callboard.frameworks.agno import from_agno
    from callboard.frameworks.langgraph import from_langgraph
    from callboard.frameworks.openai_agents import from_openai_agents
    from callboard.frameworks.pydantic_ai import from_pydantic_ai

IMPORTS = {
    "OpenAIAgent": "agents:Agent",
    "WebSearchTool": "agents:WebSearchTool",
    "function_tool": "agents:function_tool",
    "AgnoAgent": "agno.agent:Agent",
    "OpenAIChat": "agno.models.openai:OpenAIChat",
    "Team": "agno.team:Team",
    "Toolkit": "agno.tools:Toolkit",
    "agno_tool": "agno.tools:tool",
    "create_agent": "langchain.agents:create_agent",
    "langchain_tool": "langchain_core.tools:tool",
    "ChatOpenAI": "langchain_openai:ChatOpenAI",
    "PydanticAgent": "pydantic_ai:Agent",
    "TestModel": "pydantic_ai.models.test:TestModel",
    "from_agno": "callboard.frameworks.agno:from_agno",
    "from_langgraph": "callboard.frameworks.langgraph:from_langgraph",
    "from_openai_agents": "callboard.frameworks.openai_agents:from_openai_agents",
    "from_pydantic_ai": "callboard.frameworks.pydantic_ai:from_pydantic_ai",
}


@pytest.fixture(autouse=True)
def imported() -> None:
    """Import the frameworks when a test runs, not when tests are collected."""
    globals().update({name: resolve_name(where) for name, where in IMPORTS.items()})


PROMPT = "You sell seats."


def sell(seats: int) -> str:
    """Sells seats."""
    return f"sold {seats}"


def of_agno() -> FrameworkAgent[Any]:
    model = OpenAIChat(id="large", api_key="key")
    tools = [agno_tool(requires_confirmation=True)(sell)]
    return from_agno(AgnoAgent(id="clerk", model=model, instructions=PROMPT, tools=tools))


def of_pydantic_ai() -> FrameworkAgent[Any]:
    agent = PydanticAgent(TestModel(model_name="large"), instructions=PROMPT, name="clerk")
    agent.tool_plain(requires_approval=True)(sell)
    return from_pydantic_ai(agent)


def of_openai_agents() -> FrameworkAgent[Any]:
    selling = function_tool(sell, needs_approval=True)
    return from_openai_agents(OpenAIAgent("clerk", instructions=PROMPT, tools=[selling], model="large"))


def of_langgraph() -> FrameworkAgent[Any]:
    model = ChatOpenAI(model="large", api_key=SecretStr("key"))
    return from_langgraph(create_agent(model, [langchain_tool(sell)], system_prompt=PROMPT, name="clerk"))


EVERY = pytest.mark.parametrize("make", [of_agno, of_pydantic_ai, of_openai_agents, of_langgraph])


@EVERY
def test_description_has_prompt_model_and_tools_with_schemas(make: Any) -> None:
    known = make().describe()
    assert (known.instructions, known.model) == (PROMPT, "large")
    [tool] = known.tools
    assert (tool.name, tool.description) == ("sell", "Sells seats.")
    assert tool.parameters["properties"]["seats"]["type"] == "integer"
    # A graph's middleware asks, which no tool knows of.
    assert tool.asks_first is (make is not of_langgraph)


def test_description_of_agent_factory_is_empty() -> None:
    adapters: list[Any] = [from_agno, from_pydantic_ai, from_openai_agents, from_langgraph]
    known = [adapt(lambda _: None, agent_id="clerk").describe() for adapt in adapters]
    assert known == [MADE_PER_RUN] * len(adapters)


def test_instructions_by_functions_are_noted() -> None:
    agent = PydanticAgent(TestModel(), instructions=[PROMPT, lambda: "more"], system_prompt="First.", name="clerk")
    known = from_pydantic_ai(agent).describe()
    assert known.instructions == f"First.\n\n{PROMPT}"
    assert known.notes == ["1 function writes more for each run."]
    for known in (
        from_agno(AgnoAgent(id="a", instructions=lambda: PROMPT)).describe(),
        from_openai_agents(OpenAIAgent("a", instructions=lambda *_: PROMPT)).describe(),
    ):
        assert known.instructions is None
        assert any("A function writes" in note for note in known.notes)


def test_members_and_handoffs_are_noted() -> None:
    team = Team(id="team", members=[AgnoAgent(name="Ann"), AgnoAgent(id="bob")], model=OpenAIChat(id="m", api_key="k"))
    assert "Ann, bob" in from_agno(team).describe().notes[-1]
    desk = OpenAIAgent("desk", handoffs=[OpenAIAgent("Clerk")], tools=[WebSearchTool()])
    known = from_openai_agents(desk).describe()
    assert any("Clerk" in note for note in known.notes)
    [search] = known.tools
    assert (search.name, search.parameters) == ("web_search", None)


def test_tools_of_unconnected_servers_are_noted_as_unknown() -> None:
    agent = AgnoAgent(id="a", tools=[Toolkit("wiki"), Toolkit("seats", tools=[sell])])
    known = from_agno(agent).describe()
    assert [tool.name for tool in known.tools] == ["sell"]
    assert any("wiki" in note for note in known.notes)
