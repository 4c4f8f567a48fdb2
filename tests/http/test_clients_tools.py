"""Real clients offer functions to an agent that has a tool of its own: structured answers, and calls that they run."""

from __future__ import annotations

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


class Weather(BaseModel):
    """How warm it is."""

    degrees: float
    room: str


WEATHER = '{"degrees": 7, "room": "attic"}'
LOOKS: list[ModelDelta] = [wants("look_up", {"word": "attic"})]
ASKS: list[ModelDelta] = [
    TextDelta("I ask."),
    wants("look_up", {"word": "attic"}),
    wants("measure", {"room": "attic"}, index=1),
]
MEASURED: list[ModelDelta] = [TextDelta("It is 7 degrees.")]

TOLD = [
    ("assistant", ["look_up", "measure"]),
    ("tool", "attic is a fruit"),
    ("tool", "7 in the attic"),
]


def pydantic_model(client: AsyncOpenAI, *, responses: bool = False) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=client)
    return (
        PydanticResponsesModel("house", provider=provider) if responses else OpenAIChatModel("house", provider=provider)
    )


def langchain_model(client: AsyncOpenAI, **fields: Any) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model="house",
        base_url=str(client.base_url),
        api_key=SecretStr(client.api_key),
        **fields,
    )


@pytest.mark.parametrize("responses", [False, True], ids=["completions", "responses"])
async def test_pydantic_ai_gets_its_structured_output_as_the_call_of_its_output_tool(
    tmp_path: Path, responses: bool
) -> None:
    from pydantic_ai import Agent as PydanticAgent

    house = House(LOOKS, [TextDelta(WEATHER)])
    async with asking(tmp_path, house.agent) as (_, client):
        run = await PydanticAgent(pydantic_model(client, responses=responses), output_type=Weather).run(QUESTION)
    assert run.output == Weather(degrees=7, room="attic")
    assert run.usage.requests == 1
    assert len(house.asked) == 2


@pytest.mark.parametrize(
    ("responses", "stream"), [(False, True), (True, False)], ids=["completions, streamed", "responses, whole"]
)
async def test_pydantic_ai_runs_its_own_tool_and_the_server_its_own(
    tmp_path: Path, responses: bool, stream: bool
) -> None:
    from pydantic_ai import Agent as PydanticAgent

    # A stream of pydantic-ai's ends with the first text, whatever is called after it.
    house = House(ASKS[1:] if stream else ASKS, MEASURED)
    measured: list[str] = []

    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        measured.append(room)
        return f"7 in the {room}"

    async with asking(tmp_path, house.agent) as (_, client):
        agent = PydanticAgent(pydantic_model(client, responses=responses), tools=[measure])
        if stream:
            async with agent.run_stream(QUESTION) as answer:
                output = await answer.get_output()
        else:
            output = (await agent.run(QUESTION)).output
    assert output == "It is 7 degrees."
    assert measured == ["attic"]
    assert house.told()[-3:] == TOLD


async def test_pydantic_ai_may_choose_between_a_tool_and_its_output(tmp_path: Path) -> None:
    from pydantic_ai import Agent as PydanticAgent

    house = House(ASKS, [wants("final_result", WEATHER)])

    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        return f"7 in the {room}"

    async with asking(tmp_path, house.agent) as (_, client):
        agent = PydanticAgent(pydantic_model(client), output_type=Weather, tools=[measure])
        run = await agent.run(QUESTION)
    assert run.output == Weather(degrees=7, room="attic")
    assert house.asked[0].must_call
    assert house.told()[-3:] == TOLD


@pytest.mark.parametrize("responses", [False, True], ids=["completions", "responses"])
async def test_langchain_gets_structured_output_by_function_calling(tmp_path: Path, responses: bool) -> None:
    house = House(LOOKS, [TextDelta(WEATHER)])
    async with asking(tmp_path, house.agent) as (_, client):
        model = langchain_model(client, use_responses_api=responses)
        found = await model.with_structured_output(Weather, method="function_calling").ainvoke(QUESTION)
    assert found == Weather(degrees=7, room="attic")


@pytest.mark.parametrize("responses", [False, True], ids=["completions", "responses"])
async def test_langchains_agent_runs_its_own_tool_and_the_server_its_own(tmp_path: Path, responses: bool) -> None:
    from langchain.agents import create_agent
    from langchain_core.tools import tool as langchain_tool

    house = House(ASKS, MEASURED)
    measured: list[str] = []

    @langchain_tool
    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        measured.append(room)
        return f"7 in the {room}"

    async with asking(tmp_path, house.agent) as (_, client):
        agent = create_agent(langchain_model(client, use_responses_api=responses), [measure])
        asked: Any = {"messages": [("user", QUESTION)]}
        state = await agent.ainvoke(asked)
    assert state["messages"][-1].text == "It is 7 degrees."
    assert measured == ["attic"]
    assert house.told()[-3:] == TOLD


@pytest.mark.parametrize(
    ("responses", "going_on"),
    [(False, False), (True, False), (True, True)],
    ids=["completions", "responses", "previous-response"],
)
async def test_openais_agents_run_their_own_tool_and_the_server_its_own(
    tmp_path: Path, responses: bool, going_on: bool
) -> None:
    import agents
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool

    house = House(ASKS, MEASURED)
    measured: list[str] = []

    @function_tool
    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        measured.append(room)
        return f"7 in the {room}"

    agents.set_tracing_disabled(True)
    async with asking(tmp_path, house.agent) as (_, client):
        kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
        agent = agents.Agent("asker", tools=[measure], model=kind("house", client))
        run = await Runner.run(agent, QUESTION, auto_previous_response_id=going_on)
    assert run.final_output == "It is 7 degrees."
    assert measured == ["attic"]
    assert house.told()[-3:] == TOLD


async def test_openais_agents_run_a_tool_that_they_force(tmp_path: Path) -> None:
    import agents
    from agents import ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool

    house = House([TextDelta('{"room": "attic"}')], MEASURED)
    measured: list[str] = []

    @function_tool
    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        measured.append(room)
        return f"7 in the {room}"

    agents.set_tracing_disabled(True)
    async with asking(tmp_path, house.agent) as (_, client):
        model = OpenAIChatCompletionsModel("house", client)
        forced = ModelSettings(tool_choice="measure")
        run = await Runner.run(agents.Agent("asker", tools=[measure], model=model, model_settings=forced), QUESTION)
    assert (run.final_output, measured) == ("It is 7 degrees.", ["attic"])
    assert house.told()[-2:] == [("assistant", ["measure"]), ("tool", "7 in the attic")]


async def test_agno_runs_its_own_tool_once_and_the_server_its_own(tmp_path: Path) -> None:
    from agno.agent import Agent as AgnoAgent
    from agno.models.openai import OpenAIChat

    house = House(ASKS, MEASURED)
    measured: list[str] = []

    def measure(room: str) -> str:
        """Measure how warm it is in a room."""
        measured.append(room)
        return f"7 in the {room}"

    async with asking(tmp_path, house.agent) as (_, client):
        model = OpenAIChat(id="house", async_client=client)
        run = await AgnoAgent(model=model, tools=[measure], telemetry=False).arun(QUESTION)
    assert (run.content, measured) == ("I ask.It is 7 degrees.", ["attic"])
    assert house.told()[-3:] == TOLD
