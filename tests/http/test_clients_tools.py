"""Real clients offer functions to an agent that has a tool of its own: structured answers, and calls that they run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel, SecretStr

from callboard.models import ModelDelta, TextDelta
from tests.http.test_offered_tools import House
from tests.loop.conftest import wants
from tests.openai_client import asking

QUESTION = "How warm is it in the attic?"
ASKS: list[ModelDelta] = [
    TextDelta("I ask."),
    wants("look_up", {"word": "attic"}),
    wants("measure", {"room": "attic"}, index=1),
]

Measure = Callable[[str], str]
Asked = Callable[[AsyncOpenAI, Measure], Awaitable[Any]]
"""Asks the question with a client that has the tool; returns the answer."""


def pydantic_model(client: AsyncOpenAI, *, responses: bool) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=client)
    return (
        OpenAIResponsesModel("house", provider=provider) if responses else OpenAIChatModel("house", provider=provider)
    )


def langchain_model(client: AsyncOpenAI, *, responses: bool) -> Any:
    from langchain_openai import ChatOpenAI

    key = SecretStr(client.api_key)
    return ChatOpenAI(model="house", base_url=str(client.base_url), api_key=key, use_responses_api=responses)


async def pydantic_ai(client: AsyncOpenAI, measure: Measure, *, responses: bool) -> Any:
    from pydantic_ai import Agent

    agent = Agent(pydantic_model(client, responses=responses), tools=[measure])
    return (await agent.run(QUESTION)).output


async def langchain(client: AsyncOpenAI, measure: Measure, *, responses: bool) -> Any:
    from langchain.agents import create_agent

    asked: Any = {"messages": [("user", QUESTION)]}
    state = await create_agent(langchain_model(client, responses=responses), [measure]).ainvoke(asked)
    return state["messages"][-1].text


async def openai_agents(client: AsyncOpenAI, measure: Measure, *, responses: bool, by_id: bool = False) -> Any:
    import agents

    agents.set_tracing_disabled(True)
    kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel
    agent = agents.Agent("asker", tools=[agents.function_tool(measure)], model=kind("house", client))
    return (await agents.Runner.run(agent, QUESTION, auto_previous_response_id=by_id)).final_output


async def agno(client: AsyncOpenAI, measure: Measure) -> Any:
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    model = OpenAIChat(id="house", async_client=client)
    answer = (await Agent(model=model, tools=[measure], telemetry=False).arun(QUESTION)).content
    return str(answer).removeprefix("I ask.")


CLIENTS: dict[str, Asked] = {
    "pydantic-ai, completions": partial(pydantic_ai, responses=False),
    "pydantic-ai, responses": partial(pydantic_ai, responses=True),
    "LangChain, completions": partial(langchain, responses=False),
    "LangChain, responses": partial(langchain, responses=True),
    "OpenAI Agents, completions": partial(openai_agents, responses=False),
    "OpenAI Agents, responses": partial(openai_agents, responses=True),
    "OpenAI Agents, previous response": partial(openai_agents, responses=True, by_id=True),
    "Agno": agno,
}


@pytest.mark.parametrize("ask", CLIENTS.values(), ids=CLIENTS.keys())
async def test_a_client_runs_its_own_tool_once_and_the_server_its_own(tmp_path: Path, ask: Asked) -> None:
    house = House(ASKS, [TextDelta("It is 7 degrees.")])
    measured: list[str] = []

    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        measured.append(room)
        return f"7 in the {room}"

    async with asking(tmp_path, house.agent) as (_, client):
        assert await ask(client, measure) == "It is 7 degrees."
    assert measured == ["attic"]
    assert house.told()[-3:] == [
        ("assistant", ["look_up", "measure"]),
        ("tool", "attic is a fruit"),
        ("tool", "7 in the attic"),
    ]


class Weather(BaseModel):
    """How warm it is."""

    degrees: float
    room: str


@pytest.mark.parametrize("library", ["pydantic-ai", "LangChain"])
@pytest.mark.parametrize("responses", [False, True], ids=["completions", "responses"])
async def test_a_structured_output_comes_as_the_call_of_the_output_tool(
    tmp_path: Path, library: str, responses: bool
) -> None:
    from pydantic_ai import Agent

    house = House([wants("look_up", {"word": "attic"})], [TextDelta('{"degrees": 7, "room": "attic"}')])
    async with asking(tmp_path, house.agent) as (_, client):
        if library == "LangChain":
            model = langchain_model(client, responses=responses)
            output = await model.with_structured_output(Weather, method="function_calling").ainvoke(QUESTION)
        else:
            agent = Agent(pydantic_model(client, responses=responses), output_type=Weather)
            output = (await agent.run(QUESTION)).output
    assert output == Weather(degrees=7, room="attic")
    assert len(house.asked) == 2
