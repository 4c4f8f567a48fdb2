"""Questions of LangGraph's graphs to the user, and runs that cannot continue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import Error, InputRequest
from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import ADD, ADDED, calls, says, scenario
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
    from langchain_core.messages import ToolMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import interrupt

    from callboard.frameworks.langgraph import from_langgraph
    from tests.frameworks.langgraph_agents import Made, add, loop, solo

    class Gate(AgentMiddleware[Any, Any]):
        """Asks about each call when it starts, like LangChain's own middleware in its mode `per_call`."""

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            call = request.tool_call
            decision = interrupt(
                {"type": "tool_approval", "tool_call_id": call["id"], "name": call["name"], "args": call["args"]}
            )
            if decision["type"] == "approve":
                return await handler(request)
            return ToolMessage("rejected: " + decision["message"], tool_call_id=call["id"], status="error")

    class Clerk(AgentMiddleware[Any, Any]):
        """Lets the user answer instead of a tool, like LangChain's own middleware if only `respond` is allowed."""

        async def aafter_model(self, state: Any, runtime: Any) -> Any:
            calls_made = state["messages"][-1].tool_calls
            if not calls_made:
                return None
            [action] = calls_made
            request = {"name": action["name"], "args": action["args"]}
            rule = {"action_name": action["name"], "allowed_decisions": ["respond"]}
            answer = interrupt({"action_requests": [request], "review_configs": [rule]})
            [decision] = answer["decisions"]
            return {"messages": [ToolMessage(decision["message"], tool_call_id=action["id"])]}


ASKED = "ask 1 The agent asks"


async def name_pet(kind: str) -> str:
    """Names a pet."""
    name = interrupt(f"What shall the {kind} be called?")
    return f"{name} the {kind}"


async def plan_trip() -> str:
    """Plans a trip: asks where to, when, and whether to book."""
    place = interrupt({"question": "Where to?"})
    day = interrupt("When?")
    return f"{place} on {day}, booked" if interrupt("Book it?") else f"{place} on {day}"


async def test_interrupt_of_tool_asks_user_and_returns_answer(tmp_path: Path) -> None:
    asked = scenario([calls(("name_pet", '{"kind": "cat"}')), says("Fine.")], reply="Tom")
    seen, _ = await perform(solo(name_pet), asked, tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 name_pet {'kind': 'cat'}", ASKED, "result 1 Tom the cat", "say Fine.", "done stop"),
    ]
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert (question.kind, question.message) == ("input", "What shall the cat be called?")


async def test_tool_may_interrupt_more_often_than_call_limit(tmp_path: Path) -> None:
    asked = scenario([calls(("plan_trip", "{}")), says("Fine.")], reply="Rome")
    seen, _ = await perform(solo(plan_trip), asked, tmp_path)
    assert seen.lines(in_order=True)[1:] == [
        *(ASKED, ASKED, ASKED, "result 1 Rome on Rome, booked", "say Fine.", "done stop"),
    ]


@pytest.mark.parametrize(("reply", "read"), [("No", False), (" yes", True), ('{"a": 1}', {"a": 1}), ("7", "7")])
async def test_answer_is_converted_for_graph(reply: str, read: object, tmp_path: Path) -> None:
    answers: list[object] = []

    async def ask() -> None:
        """Asks."""
        answers.append(interrupt("Well?"))

    await perform(solo(ask), scenario([calls(("ask", "{}")), says("Fine.")], reply=reply), tmp_path)
    assert answers == [read]


COLOURS = {"question": "Which colour?", "options": ["red", "blue"]}
SIZES = {"message": "Which size?", "choices": [{"label": "Large", "value": {"cm": 30}}, {"label": "Small", "value": 1}]}


@pytest.mark.parametrize(
    ("asked", "reply", "read"),
    [
        (COLOURS, "2", "blue"),
        (COLOURS, "Red", "red"),
        (COLOURS, "green", "green"),
        (COLOURS, "3", "3"),
        ({"prompt": "How many?", "options": [5, 10]}, "10", 10),
        ({"prompt": "How many?", "options": [5, 10]}, "1", 5),
        ({"question": "Sure?", "options": ["yes", "no"]}, "No", "no"),
        (SIZES, "large", {"cm": 30}),
        (SIZES, "2", 1),
        ({"question": "Where to?"}, "Rome", "Rome"),
    ],
)
async def test_question_with_options_is_asked_with_choices(
    asked: dict[str, Any], reply: str, read: object, tmp_path: Path
) -> None:
    answers: list[object] = []

    async def ask() -> None:
        """Asks."""
        answers.append(interrupt(asked))

    seen, _ = await perform(solo(ask), scenario([calls(("ask", "{}")), says("Fine.")], reply=reply), tmp_path)
    assert answers == [read]
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert question.message.startswith(next(iter(asked.values())))
    assert "{" not in question.message
    labels = [
        one["label"] if isinstance(one, dict) else str(one) for one in asked.get("options", asked.get("choices", []))
    ]
    assert question.choices == tuple(labels)


async def test_other_fields_of_question_are_shown(tmp_path: Path) -> None:
    async def ask() -> str:
        """Asks."""
        return str(interrupt({**COLOURS, "draft": "a red house"}))

    seen, _ = await perform(solo(ask), scenario([calls(("ask", "{}")), says("Fine.")], reply="1"), tmp_path)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert "a red house" in question.message


@pytest.mark.parametrize("confirm_tools", [(), ("wipe",)])
async def test_call_beside_interrupt_runs_once(confirm_tools: Sequence[str], tmp_path: Path) -> None:
    toolbox = Toolbox()
    tools = [toolbox.plain("wipe"), name_pet]
    made = Made(lambda model: from_langgraph(loop(model, tools, checkpointer=InMemorySaver())))
    wanted = calls(("wipe", '{"disk": "C"}'), ("name_pet", '{"kind": "cat"}'))
    asked = scenario([wanted, says("Fine.")], reply=True)
    seen, _ = await perform(made, asked, tmp_path, confirm_tools=confirm_tools)
    assert toolbox.wiped == ["C"]
    lines = seen.lines(in_order=True)
    assert [line for line in lines if line.endswith("Run wipe?")] == ["ask 1 Run wipe?"] * len(confirm_tools)
    assert {"result 1 C is empty", "result 2 True the cat"} < set(lines)
    assert lines[-2:] == ["say Fine.", "done stop"]


async def test_calls_of_one_node_get_their_own_answers(tmp_path: Path) -> None:
    async def pick(kind: str) -> str:
        """Picks."""
        return str(interrupt({"question": f"Which {kind}?", "options": [f"first {kind}"]}))

    made = Made(lambda model: from_langgraph(loop(model, [pick], checkpointer=InMemorySaver())))
    wanted = calls(("pick", '{"kind": "cat"}'), ("pick", '{"kind": "dog"}'))
    seen, _ = await perform(made, scenario([wanted, says("Fine.")], reply="1"), tmp_path)
    assert {"result 1 first cat", "result 2 first dog"} < set(seen.lines(in_order=True))


async def test_unanswered_question_ends_turn(tmp_path: Path) -> None:
    asked = scenario([calls(("name_pet", '{"kind": "cat"}')), says("Never said.")])
    seen, _ = await perform(solo(name_pet), asked, tmp_path)
    lines = seen.lines(in_order=True)
    assert lines[1:3] == [ASKED, "failed 1 not_answered"]
    assert lines[3].startswith("say I cannot go on without your answer.")
    assert lines[4:] == ["done stop"]


async def test_unanswered_question_stops_the_calls_beside_it(tmp_path: Path) -> None:
    toolbox = Toolbox()
    made = Made(
        lambda model: from_langgraph(loop(model, [toolbox.plain("wait"), name_pet], checkpointer=InMemorySaver()))
    )
    await perform(made, scenario([calls(("wait", "{}"), ("name_pet", '{"kind": "cat"}'))]), tmp_path)
    assert toolbox.stopped.is_set()


async def test_interrupt_without_checkpointer_names_missing_checkpointer(tmp_path: Path) -> None:
    asked = scenario([calls(("name_pet", '{"kind": "cat"}'))], reply="Tom")
    seen, _ = await perform(solo(name_pet, checkpointer=None), asked, tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert (error.code, "checkpointer" in error.message) == ("agent_error", True)


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (True, ["status 1 processing approved", "result 1 5"]),
        (False, ["failed 1 denied"]),
        (None, ["failed 1 not_answered"]),
    ],
)
async def test_calls_can_be_approved_one_by_one(reply: bool | None, end: Sequence[str], tmp_path: Path) -> None:
    asked = scenario([calls(ADD), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(add, middleware=[Gate()]), asked, tmp_path)
    question = ["status 1 pending waiting for approval", "ask 1 Run add?"]
    assert seen.lines(in_order=True) == [ADDED[0], *question, *end, "say Fine.", "done stop"]


async def test_the_calls_of_an_answer_are_approved_at_once_and_the_others_run(tmp_path: Path) -> None:
    toolbox = Toolbox()
    rules: dict[str, Any] = {"wipe": {"allowed_decisions": ["approve", "reject"]}}
    made = solo(toolbox.plain("wipe"), add, middleware=[HumanInTheLoopMiddleware(rules)])
    wanted = calls(("wipe", '{"disk": "C"}'), ADD, ("wipe", '{"disk": "D"}'), ("wipe", '{"disk": "E'))
    seen, _ = await perform(made, scenario([wanted, says("Gone.")], reply=True), tmp_path)
    assert toolbox.wiped == ["C", "D"]
    lines = seen.lines(in_order=True)
    assert [line.partition("Run ")[2] for line in lines if line.startswith("ask")] == ["wipe?", "wipe?"]
    assert sum(line.endswith("invalid_args") for line in lines) == 1
    assert lines[-2:] == ["say Gone.", "done stop"]


@pytest.mark.parametrize(
    ("reply", "end", "told"),
    [("five", "result 1 five", "five"), (None, "failed 1 not_answered", "Not run: no answer came")],
)
async def test_user_answer_can_replace_tool_result(reply: str | None, end: str, told: str, tmp_path: Path) -> None:
    asked = scenario([calls(ADD), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(add, middleware=[Clerk()]), asked, tmp_path)
    lines = seen.lines(in_order=True)
    assert lines[:2] == [ADDED[0], ASKED]
    assert lines[2] == end
    assert seen.sent()[-1].startswith(f"tool {told}")


async def test_a_tool_that_takes_too_long_after_its_question_is_stopped_and_the_run_goes_on(tmp_path: Path) -> None:
    toolbox = Toolbox()
    wait = toolbox.plain("wait")

    async def ponder() -> Any:
        """Asks, and ponders for ever."""
        return interrupt("Sure?"), await wait()

    late = scenario([calls(("ponder", "{}")), says("It took too long.")], reply="yes")
    seen, _ = await perform(solo(ponder), late, tmp_path, tool_timeout_seconds=0.05)
    assert seen.lines(in_order=True)[-3:] == ["failed 1 timeout", "say It took too long.", "done stop"]
    assert toolbox.stopped.is_set()


TRIP = {"type": "object", "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}, "required": ["town"]}


@pytest.mark.parametrize(
    ("reply", "read"), [({"town": "Rome", "days": "2"}, {"town": "Rome", "days": 2}), (False, None)]
)
async def test_response_schema_of_an_interrupt_is_a_form(reply: Any, read: object, tmp_path: Path) -> None:
    answers: list[object] = []

    async def ask() -> None:
        """Asks."""
        answers.append(interrupt("Where to?", response_schema=TRIP))

    seen, _ = await perform(solo(ask), scenario([calls(("ask", "{}")), says("Fine.")], reply=reply), tmp_path)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert (question.kind, question.message, question.form) == ("form", "Where to?", TRIP)
    assert answers == ([] if read is None else [read])
