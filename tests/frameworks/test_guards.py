"""An answer that a framework's guardrail replaces or refuses leaves no trace.

A guardrail checks a complete answer, which the page has shown by then. The refused answer is taken back from the page,
is not stored, and is not sent with the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import Error
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Answer, Body
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import Framework, Performance, perform

if TESTS_RUN:
    from agents import GuardrailFunctionOutput, input_guardrail, output_guardrail
    from agno.agent import Agent
    from agno.exceptions import CheckTrigger, OutputCheckError
    from agno.run.agent import RunOutput
    from agno.run.team import TeamRunOutput
    from agno.team import Team
    from langchain.agents.middleware import AgentMiddleware, PIIMiddleware, after_agent, after_model
    from langchain_core.messages import AIMessage, RemoveMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai import ModelRetry
    from pydantic_ai.capabilities import AbstractCapability

    from callboard.frameworks.agno import from_agno
    from callboard.frameworks.langgraph import from_langgraph
    from callboard.frameworks.pydantic_ai import from_pydantic_ai
    from tests.frameworks import agno_agents, langgraph_agents, openai_agents_stage, pydantic_ai_agents

SECRET = "mail@example.org"
ANSWER = f"Write to {SECRET} today."
LET_ME = "Let me see. "


def script(body: Body) -> Answer:
    """An answer with a secret after a call, and an answer without a secret to the second question."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return says(ANSWER)
    return says("Fine.") if "again" in str(last["content"]) else calls(ADD, before=LET_ME)


def _redact(text: str) -> str:
    return text.replace(SECRET, "[hidden]")


# LangGraph


def redacts_with_same_id() -> Framework:
    @after_model
    def guard(state: Any, runtime: Any) -> dict[str, Any] | None:
        last = state["messages"][-1]
        if SECRET not in last.text:
            return None
        return {"messages": [AIMessage(_redact(last.text), id=last.id, tool_calls=last.tool_calls)]}

    return _graph(guard)


def redacts_at_the_end() -> Framework:
    @after_agent
    def guard(state: Any, runtime: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        return {"messages": [AIMessage(_redact(last.text), id=last.id)]}

    return _graph(guard)


def removes_and_adds() -> Framework:
    @after_agent
    def guard(state: Any, runtime: Any) -> dict[str, Any]:
        last = state["messages"][-1]
        return {"messages": [RemoveMessage(id=last.id), AIMessage(_redact(last.text))]}

    return _graph(guard)


def redacts_inside_the_node() -> Framework:
    class Guard(AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            for message in response.result:
                if isinstance(message.content, str):
                    message.content = _redact(message.content)
            return response

    return _graph(Guard())


def pii_redacts() -> Framework:
    return _graph(PIIMiddleware("email", strategy="redact", apply_to_input=False, apply_to_output=True))


def pii_blocks() -> Framework:
    return _graph(PIIMiddleware("email", strategy="block", apply_to_input=False, apply_to_output=True))


def raises_after_the_model() -> Framework:
    @after_model
    def guard(state: Any, runtime: Any) -> None:
        if SECRET in state["messages"][-1].text:
            raise ValueError("This is not allowed.")

    return _graph(guard)


def raises_inside_the_node() -> Framework:
    class Guard(AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            if any(SECRET in str(message.content) for message in response.result):
                raise ValueError("This is not allowed.")
            return response

    return _graph(Guard())


def _graph(*middleware: Any) -> Framework:
    return langgraph_agents.solo(langgraph_agents.add, middleware=middleware)


# OpenAI Agents


def trips_on_output() -> Framework:
    @output_guardrail
    async def guard(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=SECRET in output)

    return openai_agents_stage.solo(openai_agents_stage.add, output_guardrails=[guard])


def trips_on_input_while_the_model_answers() -> Framework:
    @input_guardrail
    async def guard(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        if "again" in str(given):
            return GuardrailFunctionOutput(None, tripwire_triggered=False)
        await said_it.wait()
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    said_it = asyncio.Event()
    made = openai_agents_stage.solo(input_guardrails=[guard])

    def make(model: Any) -> Any:
        stream = model.stream_response

        async def notice(*request: Any, **more: Any) -> Any:
            async for event in stream(*request, **more):
                yield event
            said_it.set()

        model.stream_response = notice
        return made.make(model)

    return openai_agents_stage.Made(make)


# Agno


def check_fails() -> Framework:
    def guard(run_output: RunOutput) -> None:
        if SECRET in str(run_output.content):
            raise OutputCheckError("This is not allowed.", check_trigger=CheckTrigger.OUTPUT_NOT_ALLOWED)

    return agno_agents.solo(agno_agents.add, post_hooks=[guard])


def team_check_fails() -> Framework:
    def guard(run_output: TeamRunOutput) -> None:
        if SECRET in str(run_output.content):
            raise OutputCheckError("This is not allowed.", check_trigger=CheckTrigger.OUTPUT_NOT_ALLOWED)

    def make(model: Any) -> Any:
        member = Agent(id="member", name="Member", model=model(), telemetry=False)
        tools: list[Any] = [agno_agents.add]
        return from_agno(
            Team(id="agent", members=[member], model=model(), tools=tools, post_hooks=[guard], telemetry=False)
        )

    return agno_agents.Made(make)


def hook_redacts() -> Framework:
    def guard(run_output: RunOutput) -> None:
        run_output.content = _redact(str(run_output.content))

    return agno_agents.solo(agno_agents.add, post_hooks=[guard])


# pydantic-ai


def validator_is_out_of_retries() -> Framework:
    return _validated(lambda output: _refuse() if SECRET in output else output)


def validator_redacts() -> Framework:
    return _validated(_redact)


def capability_redacts() -> Framework:
    class Guard(AbstractCapability[Any]):
        async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
            for part in response.parts:
                if hasattr(part, "content"):
                    part.content = _redact(part.content)
            return response

    return pydantic_ai_agents.solo(pydantic_ai_agents.add, capabilities=[Guard()])


def _refuse() -> str:
    raise ModelRetry("This is not allowed.")


def _validated(check: Callable[[str], str]) -> Framework:
    def make(model: Any) -> Any:
        agent = PydanticAgent(model, name="agent", tools=[pydantic_ai_agents.add], retries=0)
        agent.output_validator(check)
        return from_pydantic_ai(agent)

    return pydantic_ai_agents.Made(make)


REPLACE = (
    *(redacts_with_same_id, redacts_at_the_end, removes_and_adds, redacts_inside_the_node, pii_redacts),
    *(hook_redacts, validator_redacts, capability_redacts),
)
REFUSE = (
    *(pii_blocks, raises_after_the_model, raises_inside_the_node, trips_on_output),
    *(check_fails, team_check_fails, validator_is_out_of_retries),
)


async def seen_of(guarded: Callable[[], Framework], folder: Path, answers: Any = script) -> Performance:
    """Two turns with a guarded agent. The guard changes or refuses the first answer."""
    seen, _ = await perform(guarded(), scenario(answers, turns=("go", "again")), folder)
    assert SECRET not in seen.left()
    assert SECRET not in str(seen.stored)
    assert SECRET not in str(seen.requests[-1])
    assert SECRET not in "".join(event.message for event in seen.events if isinstance(event, Error))
    return seen


@pytest.mark.parametrize("guarded", REPLACE, ids=lambda guarded: guarded.__name__)
async def test_answer_is_taken_back_before_replacement_by_guard(
    guarded: Callable[[], Framework], tmp_path: Path
) -> None:
    seen = await seen_of(guarded, tmp_path)
    first = Performance([seen.turns[0]])
    hidden = "[REDACTED_EMAIL]" if guarded is pii_redacts else "[hidden]"
    assert first.left() == f"{LET_ME}Write to {hidden} today."
    assert hidden in str(seen.stored)
    assert hidden in str(seen.requests[-1])


@pytest.mark.parametrize("guarded", REFUSE, ids=lambda guarded: guarded.__name__)
async def test_answer_refused_by_guard_is_taken_back_before_error(
    guarded: Callable[[], Framework], tmp_path: Path
) -> None:
    seen = await seen_of(guarded, tmp_path)
    first = Performance([seen.turns[0]])
    assert first.left() == LET_ME
    assert isinstance(seen.turns[0][-1], Error)


async def test_answer_is_taken_back_if_parallel_guard_refuses_question(tmp_path: Path) -> None:
    def answers(body: Body) -> Answer:
        return says("Fine." if "again" in str(body["messages"][-1]["content"]) else ANSWER)

    seen = await seen_of(trips_on_input_while_the_model_answers, tmp_path, answers)
    assert Performance([seen.turns[0]]).left() == ""
    assert isinstance(seen.turns[0][-1], Error)


@pytest.mark.parametrize(
    "guarded",
    [redacts_with_same_id, redacts_inside_the_node, pii_redacts, capability_redacts],
    ids=lambda guarded: guarded.__name__,
)
async def test_replaced_text_before_call_is_sent_before_call_starts(
    guarded: Callable[[], Framework], tmp_path: Path
) -> None:
    def answers(body: Body) -> Answer:
        last = body["messages"][-1]
        return says("Fine.") if "again" in str(last["content"]) or last["role"] == "tool" else calls(ADD, before=ANSWER)

    seen = await seen_of(guarded, tmp_path, answers)
    hidden = "[REDACTED_EMAIL]" if guarded is pii_redacts else "[hidden]"
    assert Performance([seen.turns[0]]).left() == f"Write to {hidden} today.Fine."
    assert hidden in str(seen.requests[1])


async def test_answer_is_kept_if_run_fails_outside_of_guards(tmp_path: Path) -> None:
    def make(model: Any) -> Any:
        async def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        def save(state: MessagesState) -> None:
            raise OSError("The disk is full.")

        graph = StateGraph(MessagesState).add_node("ask", ask).add_node("save", save)
        return from_langgraph(graph.add_edge(START, "ask").add_edge("ask", "save").compile(name="agent"))

    seen, _ = await perform(langgraph_agents.Made(make), scenario([says("It is 5.")]), tmp_path)
    assert seen.lines(in_order=True) == ["say It is 5.", "error agent_error"]
