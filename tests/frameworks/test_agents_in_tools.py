"""A tool that asks another agent of its framework: the other's calls and requests are the run's."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import ToolCallArgsDelta, Usage
from tests.fakes.openai_server import Answer, Body
from tests.frameworks.scenario import ADD, MAX_TOOL_CALLS, calls, says, scenario
from tests.frameworks.stage import Framework, perform
from tests.frameworks.toolbox import Toolbox

AWAITED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Agno": ("agno_agents", "asks_another", {}),
    "Agno, events passed on": ("agno_agents", "asks_another", {"is_generator": True}),
    "pydantic-ai": ("pydantic_ai_agents", "asks_another", {}),
    "LangGraph": ("langgraph_agents", "asks_another", {}),
}
IN_A_THREAD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Agno in a thread": ("agno_agents", "asks_another_and_waits", {}),
    "Agno in a thread, streamed": ("agno_agents", "asks_another_and_waits", {"stream": True}),
    "Agno in a thread, events passed on": ("agno_agents", "asks_another_and_waits", {"is_generator": True}),
    "pydantic-ai in a thread": ("pydantic_ai_agents", "asks_another_and_waits", {}),
    "LangGraph in a thread": ("langgraph_agents", "asks_another_and_waits", {}),
}

ASKS = calls(("ask_other", '{"task": "help"}'))


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@pytest.fixture
def framework(request: pytest.FixtureRequest) -> Framework:
    """Return an agent whose tool runs another agent, which has the tool `add`."""
    way: str = request.param
    module, function, options = (AWAITED | IN_A_THREAD)[way]
    tool = add if way in IN_A_THREAD else Toolbox().plain("add")
    made: Framework = getattr(importlib.import_module(f"tests.frameworks.{module}"), function)(tool, **options)
    return made


awaited = pytest.mark.parametrize("framework", AWAITED, indirect=True)
every_way = pytest.mark.parametrize("framework", [*AWAITED, *IN_A_THREAD], indirect=True)


def is_the_other(body: Body) -> bool:
    return [tool["function"]["name"] for tool in body.get("tools") or ()] == ["add"]


def asks_and_adds(body: Body) -> Answer:
    ended = body["messages"][-1]["role"] == "tool"
    if is_the_other(body):
        return says("I say 5.") if ended else calls(ADD)
    return says("It says 5.") if ended else ASKS


@every_way
async def test_calls_of_inner_agent_are_shown_below_tool_and_requests_are_counted(
    framework: Framework, tmp_path: Path
) -> None:
    seen, _ = await perform(framework, scenario(asks_and_adds), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 ask_other {'task': 'help'}",
        *("call 2 in 1 add {'a': 2, 'b': 3}", "result 2 5", "result 1 I say 5."),
        *("say It says 5.", "done stop"),
    ]
    assert len(seen.asked) == 4
    assert seen.asked == seen.received
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [60]


@every_way
async def test_next_turn_replays_outer_tool_without_inner_calls(framework: Framework, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        again = sum(message["role"] == "user" for message in body["messages"]) == 2
        return says("As I said.") if again else asks_and_adds(body)

    turns = scenario(script, turns=("go", "once more"))
    seen, _ = await perform(framework, turns, tmp_path)
    assert seen.sent() == [
        *("user go", "assistant calls ask_other {'task': 'help'}", "tool I say 5."),
        *("assistant It says 5.", "user once more"),
    ]
    written = {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert written <= {"ask_other"}, "a call whose arguments are shown has a card of its own"
    kept = {row.tool_name: row for row in seen.stored if row.role == "tool"}
    assert kept["add"].parent_call_id == kept["ask_other"].tool_call_id
    assert kept["ask_other"].parent_call_id is None


ASKED = (
    *("call 1 ask_other {'task': 'help'}", "call 2 in 1 add {'a': 2, 'b': 3}"),
    *("status 2 pending waiting for approval", "ask 2 Run add?"),
)


@every_way
async def test_user_is_asked_about_calls_of_inner_agent(framework: Framework, tmp_path: Path) -> None:
    seen, _ = await perform(framework, scenario(asks_and_adds, reply=True), tmp_path, confirm_tools=["add"])
    assert seen.lines(in_order=True) == [
        *(*ASKED, "status 2 processing approved", "result 2 5", "result 1 I say 5.", "say It says 5.", "done stop"),
    ]


@awaited
async def test_refused_call_of_inner_agent_is_not_run_and_agent_gets_refusal(
    framework: Framework, tmp_path: Path
) -> None:
    seen, _ = await perform(framework, scenario(asks_and_adds, reply=False), tmp_path, confirm_tools=["add"])
    assert seen.lines(in_order=True) == [
        *(*ASKED, "failed 2 denied", "result 1 I say 5.", "say It says 5.", "done stop"),
    ]
    assert "Not run: the user refused it." in seen.requests[2]["messages"][-1]["content"]


@awaited
async def test_calls_of_inner_agent_count_towards_limit(framework: Framework, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        if is_the_other(body):
            asked = len(body["messages"])
            return calls(("add", f'{{"a": {asked}, "b": 1}}'), first=asked)
        return ASKS if body.get("tools") else says("It is enough.")

    seen, _ = await perform(framework, scenario(script), tmp_path)
    lines = seen.lines(in_order=True)
    # The tool itself is the first of the calls that are allowed.
    assert MAX_TOOL_CALLS == 3
    ends = [line.split()[:2] for line in lines if line.startswith(("result", "failed"))]
    assert ends == [["result", "2"], ["result", "3"], ["failed", "4"], ["result", "1"]]
    assert "failed 4 limit" in lines
    assert lines[-2:] == ["say It is enough.", "done max_turns"]
