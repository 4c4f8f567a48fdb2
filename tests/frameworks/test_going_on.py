"""A run that another server continues: the messages end in tool results, and the model is asked what comes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from callboard import Agent, register
from callboard.agents import AgentLike, OnOwnerLoss, Registry, RunContext
from callboard.errors import AgentError
from callboard.models import ChatDict, ScriptedModel
from callboard_protocol import Done, Event, Message
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Body, OpenAIServer, chunks, finish, text
from tests.frameworks.columns import FRAMEWORKS
from tests.frameworks.stage import Framework
from tests.frameworks.toolbox import Toolbox
from tests.serving import ScriptedAgent

if TESTS_RUN:
    from agents import Agent as SDKAgent
    from agents import ModelSettings, function_tool
    from agents.memory import SQLiteSession
    from agno.agent import Agent as AgnoAgent
    from agno.team import Team, TeamMode
    from langchain.agents.middleware import TodoListMiddleware, before_agent
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from pydantic_ai import Agent as PydanticAgent

    from callboard.frameworks.agno import from_agno
    from callboard.frameworks.langgraph import from_langgraph
    from callboard.frameworks.langgraph.stream import Graph
    from callboard.frameworks.openai_agents import from_openai_agents
    from callboard.frameworks.pydantic_ai import from_pydantic_ai
    from tests.frameworks import agno_agents, openai_agents_stage
    from tests.frameworks.langgraph_agents import add, agent_of, loop

    @before_agent
    def note(state: Any, runtime: Any) -> None:
        """Do nothing."""


def called(call_id: str, arguments: str, result: str, said: str | None = None) -> list[ChatDict]:
    """A round with one call."""
    return [round_of((call_id, arguments), said=said), {"role": "tool", "tool_call_id": call_id, "content": result}]


def round_of(*calls: tuple[str, str], said: str | None = None) -> ChatDict:
    made = [
        {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}
        for call_id, arguments in calls
    ]
    return {"role": "assistant", "content": said, "tool_calls": made}


ASKED: ChatDict = {"role": "user", "content": "go"}
HISTORIES: dict[str, list[ChatDict]] = {
    "a round": [ASKED, *called("call_1", '{"a": 2, "b": 3}', "5", "Let me add. ")],
    "two rounds": [ASKED, *called("call_1", '{"a": 2, "b": 3}', "5"), *called("call_2", '{"a": 5, "b": 5}', "10")],
    "one that failed beside one that did not": [
        ASKED,
        round_of(("call_1", '{"a": 2, "b": 3}'), ("call_2", '{"a": 5, "b": 5}')),
        {"role": "tool", "tool_call_id": "call_1", "content": "Error: the server stopped"},
        {"role": "tool", "tool_call_id": "call_2", "content": "10"},
    ],
    "a turn before it": [
        {"role": "user", "content": "hi"},
        *called("call_0", '{"a": 1, "b": 1}', "2"),
        {"role": "assistant", "content": "It is 2."},
        ASKED,
        *called("call_1", '{"a": 2, "b": 3}', "5"),
    ],
}


class Crew:
    """A team of Agno's with one member."""

    def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AbstractAsyncContextManager[AgentLike]:
        def make(model: Callable[[], Any]) -> AgentLike:
            member = AgnoAgent(id="adder", name="Adder", model=model(), tools=[agno_agents.add], telemetry=False)
            return from_agno(Team(id="agent", members=[member], model=model(), telemetry=False))

        return agno_agents.Made(make).agent(base_url, tools, toolbox)


AGENTS: dict[str, Framework] = {**{column.name: column for column in FRAMEWORKS}, "Agno's teams": Crew()}


async def go_on(framework: Framework, messages: Sequence[ChatDict]) -> tuple[list[Event], list[Body]]:
    """Run the agent, whose model answers with text."""
    async with (
        OpenAIServer([chunks(text("Well."), finish("stop"))]) as server,
        framework.agent(server.base_url, ["add"], Toolbox()) as agent,
    ):
        context = RunContext("run", messages, str, ScriptedModel(), chat_id="chat")
        return [event async for event in agent.run(context)], server.requests


def sent(messages: Sequence[ChatDict]) -> list[Any]:
    """Roles, texts and calls, and for each result the call that it belongs to."""
    ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    return [
        (
            message["role"],
            message.get("content") or "",
            [call["function"]["arguments"].replace(" ", "") for call in message.get("tool_calls") or ()],
            ids.index(message["tool_call_id"]) if message["role"] == "tool" else None,
        )
        for message in messages
        if message["role"] not in ("system", "developer")
    ]


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", AGENTS)
async def test_continued_run_sends_expected_messages_and_runs_no_tool(name: str, history: str) -> None:
    messages = HISTORIES[history]
    events, requests = await go_on(AGENTS[name], messages)
    assert [sent(body["messages"]) for body in requests] == [sent(messages)]
    assert [event for event in events if event.type not in ("usage", "tool_call_args_delta")] == [
        Message(content="Well."),
        Done(),
    ]


@pytest.mark.parametrize("choice", ["required", "add"])
async def test_required_tool_is_not_required_again_in_continued_run(choice: str) -> None:
    forced = openai_agents_stage.solo(
        function_tool(Toolbox().plain("add")), model_settings=ModelSettings(tool_choice=choice)
    )
    _, [first] = await go_on(forced, [ASKED])
    _, [again] = await go_on(forced, HISTORIES["a round"])
    _, [next_turn] = await go_on(forced, [*HISTORIES["a round"], {"role": "assistant", "content": "5"}, ASKED])
    assert "tool_choice" in first
    assert "tool_choice" not in again
    assert next_turn["tool_choice"] == first["tool_choice"]


# --- Who goes on, and who ends ---------------------------------------------------------------------------------------


def agno(**fields: Any) -> AgnoAgent:
    return AgnoAgent(id="agent", telemetry=False, **fields)


def team(**fields: Any) -> Team:
    return Team(id="agent", members=[agno(name="member")], telemetry=False, **fields)


def graph(**fields: Any) -> Graph:
    return agent_of(model(), add, **fields)


def model() -> ChatOpenAI:
    return ChatOpenAI(model="m", base_url="http://127.0.0.1:9/v1", api_key="key")  # type: ignore[arg-type] # a str too


def with_a_planner() -> Graph:
    """A graph that does not return to its start."""

    def speak(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model().invoke(state["messages"])]}

    made = StateGraph(MessagesState)
    made.add_node("plan", speak)
    made.add_node("act", graph())
    made.add_edge(START, "plan")
    made.add_edge("plan", "act")
    return made.compile(name="agent")


async def own_session(_: RunContext) -> SQLiteSession:
    return SQLiteSession("chat")


MADE: dict[str, tuple[Callable[..., AgentLike], OnOwnerLoss]] = {
    "an agent of Agno": (lambda **more: from_agno(agno(), **more), "continue"),
    "a function that makes one": (lambda **more: from_agno(lambda _: agno(), agent_id="agent", **more), "continue"),
    "a team": (lambda **more: from_agno(team(), **more), "continue"),
    "a team with a list of tasks": (lambda **more: from_agno(team(mode=TeamMode.tasks), **more), "end"),
    "a team whose members read the user": (
        lambda **more: from_agno(team(determine_input_for_members=False), **more),
        "end",
    ),
    "an agent of pydantic-ai": (lambda **more: from_pydantic_ai(PydanticAgent(name="agent"), **more), "continue"),
    "an agent of the SDK": (lambda **more: from_openai_agents(SDKAgent("agent"), **more), "continue"),
    "an agent of LangChain": (
        lambda **more: from_langgraph(graph(middleware=[TodoListMiddleware(), note]), **more),
        "continue",
    ),
    "an agent without tools": (lambda **more: from_langgraph(agent_of(model()), **more), "continue"),
    "a loop by hand": (lambda **more: from_langgraph(loop(model(), [add]), **more), "continue"),
    "a graph with a planner": (lambda **more: from_langgraph(with_a_planner(), **more), "end"),
    "a function that makes a graph": (lambda **more: from_langgraph(lambda _: graph(), agent_id="a", **more), "end"),
    "an agent of our own": (lambda **more: Agent("agent", **more), "continue"),
}

WITH_A_HISTORY_OF_ITS_OWN: dict[str, Callable[..., AgentLike]] = {
    "Agno": lambda **more: from_agno(agno(), history="own", **more),
    "the SDK": lambda **more: from_openai_agents(SDKAgent("agent"), session=own_session, **more),
    "LangGraph": lambda **more: from_langgraph(graph(checkpointer=InMemorySaver()), history="own", **more),
}


def read_on_owner_loss(agent: AgentLike) -> object:
    return getattr(agent, "on_owner_loss", None)


@pytest.mark.parametrize("what", MADE)
def test_default_of_on_owner_loss_and_override_by_author(what: str) -> None:
    make, usual = MADE[what]
    assert read_on_owner_loss(make()) == usual
    for wanted in ("continue", "end"):
        assert read_on_owner_loss(make(on_owner_loss=wanted)) == wanted
    with pytest.raises(AgentError, match="has on_owner_loss='stop': give 'continue'"):
        make(on_owner_loss="stop")


@pytest.mark.parametrize("what", WITH_A_HISTORY_OF_ITS_OWN)
def test_own_history_with_on_owner_loss_continue_is_refused(what: str) -> None:
    make = WITH_A_HISTORY_OF_ITS_OWN[what]
    assert read_on_owner_loss(make()) == "end"
    with pytest.raises(AgentError, match="its own history lacks the calls that ended there"):
        make(on_owner_loss="continue")


def test_own_agent_with_unknown_on_owner_loss_is_refused() -> None:
    class Careless(ScriptedAgent):
        on_owner_loss = "maybe"

    careless = Careless(lambda _: iter(()))  # type: ignore[arg-type, return-value] # it is not run
    with pytest.raises(AgentError, match="on_owner_loss='maybe'"):
        register(careless)
    with pytest.raises(AgentError, match="on_owner_loss='maybe'"):
        Registry([careless])
