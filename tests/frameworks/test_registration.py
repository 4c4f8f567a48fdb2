"""What each adapter serves: an agent, or a function that makes one for each run; other objects are refused at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike, RunContext
from callboard.errors import AgentError
from callboard_protocol import Error
from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import says, scenario
from tests.frameworks.stage import perform

if TESTS_RUN:
    import agents
    import agno.agent
    import pydantic_ai
    from agno.workflow import Workflow
    from langchain_core.runnables import RunnableLambda
    from langgraph.graph import MessagesState, StateGraph
    from langgraph.pregel.remote import RemoteGraph

    from callboard.frameworks.agno import from_agno
    from callboard.frameworks.langgraph import from_langgraph
    from callboard.frameworks.openai_agents import from_openai_agents
    from callboard.frameworks.pydantic_ai import from_pydantic_ai
    from tests.frameworks import agno_agents, langgraph_agents, openai_agents_stage, pydantic_ai_agents

    ADAPTERS: dict[str, Any] = {
        "Agno": from_agno,
        "pydantic-ai": from_pydantic_ai,
        "LangGraph": from_langgraph,
        "OpenAI Agents": partial(from_openai_agents, run_config=openai_agents_stage.UNTRACED),
    }
    AGENTS: dict[str, Callable[..., Any]] = {
        "Agno": lambda model, **fields: agno.agent.Agent(model=model(), telemetry=False, **fields),
        "pydantic-ai": lambda model, **fields: pydantic_ai.Agent(model, **fields),
        "LangGraph": lambda model, instructions: langgraph_agents.agent_of(model, system_prompt=instructions),
        "OpenAI Agents": lambda model, **fields: agents.Agent("Servant", model=model, **fields),
    }

    async def do_nothing(state: MessagesState) -> None:
        pass

    GRAPH = StateGraph(MessagesState).add_node("node", do_nothing).set_entry_point("node")
    NAMED: dict[str, Callable[[str], Any]] = {
        "Agno": lambda name: agno.agent.Agent(name=name),
        "pydantic-ai": lambda name: pydantic_ai.Agent("test", name=name),
        "LangGraph": lambda name: GRAPH.compile(name=name),
        "OpenAI Agents": agents.Agent,
    }
    STAGES: dict[str, Any] = {
        "Agno": agno_agents,
        "pydantic-ai": pydantic_ai_agents,
        "LangGraph": langgraph_agents,
        "OpenAI Agents": openai_agents_stage,
    }

NAMES = ("Agno", "pydantic-ai", "LangGraph", "OpenAI Agents")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda: "gpt-5", "this is 'gpt-5'"),
        (lambda: None, "this is None"),
        (list, "builtins.list"),
        (lambda: int, "this is int"),
        (lambda: lambda: None, "takes one argument, the RunContext"),
    ],
    ids=["text", "None", "list", "class", "function"],
)
@pytest.mark.parametrize("name", NAMES)
def test_object_that_is_no_agent_is_refused(name: str, given: Callable[[], object], told: str) -> None:
    with pytest.raises(AgentError, match="or a function that makes one for each run") as refused:
        ADAPTERS[name](given(), agent_id="agent")
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("LangGraph", lambda: StateGraph(MessagesState), r"Compile it: graph.compile\(\)"),
        ("LangGraph", lambda: RemoteGraph("agent", url="http://127.0.0.1:1"), "runs on another server"),
        ("LangGraph", lambda: RunnableLambda(lambda given: given), "create_agent"),
        ("LangGraph", lambda: agno.agent.Agent(), "agno.agent"),
        ("Agno", lambda: Workflow(name="flow"), "agno.workflow"),
        ("Agno", lambda: pydantic_ai.Agent("test"), "pydantic_ai"),
        ("pydantic-ai", lambda: agents.Agent("agent"), "agents.agent.Agent"),
        ("OpenAI Agents", lambda: agno.agent.Agent(), "agno.agent"),
    ],
)
def test_an_object_of_another_kind_is_refused_with_advice(name: str, given: Callable[[], object], told: str) -> None:
    with pytest.raises(AgentError, match=told):
        ADAPTERS[name](given(), agent_id="agent")


@pytest.mark.parametrize("name", NAMES)
def test_id_is_made_of_name_and_required_if_no_id_can_be_made_of_it(name: str) -> None:
    made = ADAPTERS[name](NAMED[name]("Weather Expert!"))
    assert (made.agent_id, made.name) == ("Weather-Expert", "Weather Expert!")
    with pytest.raises(AgentError, match="agent_id"):
        ADAPTERS[name](NAMED[name]("天気"))


@pytest.mark.parametrize("name", NAMES)
async def test_function_makes_agent_from_context_of_run(name: str, tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        async def build(context: RunContext) -> Any:
            assert context.user is not None
            return AGENTS[name](model, instructions=f"You serve {context.user.id}.")

        served: AgentLike = ADAPTERS[name](build, agent_id="agent")
        return served

    seen, _ = await perform(STAGES[name].Made(make), scenario([says("At your service.")]), tmp_path)
    assert "You serve u1." in seen.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_function_that_makes_no_agent_is_named_in_the_error(name: str, tmp_path: Path) -> None:
    made = STAGES[name].Made(lambda _: ADAPTERS[name](lambda context: "gpt-5", agent_id="agent"))
    seen, _ = await perform(made, scenario([]), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert "The function of the agent 'agent' must return" in error.message
    assert "str" in error.message
