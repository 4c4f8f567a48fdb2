"""What a run of pydantic-ai waits for: approvals in each of its ways, questions, and calls that are run elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from callboard_protocol import InputRequest, ToolCallError
from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import Performance, perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from pydantic_ai import ApprovalRequired, CallDeferred, RunContext, Tool, ToolDefinition
    from pydantic_ai.capabilities import HandleDeferredToolCalls
    from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
    from pydantic_ai.toolsets import ExternalToolset

    from tests.frameworks.pydantic_ai_agents import add, solo

WIPE = calls(("wipe", '{"disk": "C"}'))


def needing_approval(toolbox: Toolbox) -> Tool[Any]:
    return Tool(toolbox.plain("wipe"), requires_approval=True)


def later(disk: str) -> str:
    """Wipes a disk."""
    raise CallDeferred


def errors(seen: Performance) -> list[str]:
    return [event.error for event in seen.events if isinstance(event, ToolCallError)]


@pytest.mark.parametrize(
    ("reply", "told"), [(True, "tool C is empty"), (False, "tool Error: Not run: the user refused")]
)
async def test_a_tool_can_ask_for_approval_itself(reply: bool, told: str, tmp_path: Path) -> None:
    def wipe(ctx: RunContext[None], disk: str) -> str:
        """Wipes a disk."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"{disk} is empty"

    seen, _ = await perform(solo(wipe), scenario([WIPE, says("So be it.")], reply=reply), tmp_path)
    assert sum(isinstance(event, InputRequest) for event in seen.events) == 1
    assert seen.sent()[-1].startswith(told)
    assert seen.lines(in_order=True)[-2:] == ["say So be it.", "done stop"]


async def test_call_without_approval_runs_before_question(tmp_path: Path) -> None:
    toolbox = Toolbox()
    both = calls(("wipe", '{"disk": "C"}'), ADD)
    seen, _ = await perform(solo(needing_approval(toolbox), add), scenario([both, says("Gone.")], reply=True), tmp_path)
    assert seen.lines(in_order=True)[:4] == [
        *("call 1 add {'a': 2, 'b': 3}", "result 1 5", "call 2 wipe {'disk': 'C'}"),
        "status 2 pending waiting for approval",
    ]
    assert toolbox.wiped == ["C"]


async def test_user_is_not_asked_about_call_that_cannot_run(tmp_path: Path) -> None:
    wrong = calls(("wipe", '{"disk": 3}'))
    made = solo(needing_approval(Toolbox()))
    seen, _ = await perform(made, scenario([wrong, says("Oh.")], reply=True), tmp_path)
    assert seen.lines(in_order=True) == ["call 1 wipe {'disk': 3}", "failed 1 invalid_args", "say Oh.", "done stop"]


async def test_agent_capability_decides_before_user(tmp_path: Path) -> None:
    async def judge(ctx: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(
            approvals={call.tool_call_id: ToolDenied("no wiping") for call in requests.approvals}
        )

    judged = solo(needing_approval(Toolbox()), capabilities=[HandleDeferredToolCalls(judge)])
    seen, toolbox = await perform(judged, scenario([WIPE, says("As you wish.")]), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 wipe {'disk': 'C'}", "failed 1 denied", "say As you wish.", "done stop"),
    ]
    assert errors(seen) == ["no wiping"]
    assert toolbox.wiped == []


async def test_external_call_answered_by_agent_is_shown_with_result(tmp_path: Path) -> None:
    async def run(ctx: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        return DeferredToolResults(calls={call.tool_call_id: {"wiped": True} for call in requests.calls})

    made = solo(Tool(later, name="wipe"), capabilities=[HandleDeferredToolCalls(run)])
    seen, _ = await perform(made, scenario([WIPE, says("Gone.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ['result 1 {"wiped":true}', "say Gone.", "done stop"]
    assert seen.sent()[-1] == 'tool {"wiped":true}'


@pytest.mark.parametrize("kind", ["a tool that defers", "an external tool"])
async def test_external_call_fails_and_run_continues(kind: str, tmp_path: Path) -> None:
    external = ExternalToolset[None]([ToolDefinition(name="wipe")])
    made = solo(toolsets=[external]) if kind == "an external tool" else solo(Tool(later, name="wipe"))
    seen, _ = await perform(made, scenario([WIPE, says("Not here.")]), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 wipe {'disk': 'C'}", "failed 1 tool_failed", "say Not here.", "done stop"),
    ]
    assert "outside of its agent" in seen.sent()[-1]


class Seats(BaseModel):
    seats: int
    row: Literal["stalls", "balcony"]


class Party(BaseModel):
    guests: list[Seats]


def choose_seats(play: str) -> Seats:
    """Ask which seats the user wants."""
    raise CallDeferred(kind="question")


def choose_colour() -> Literal["red", "blue"]:
    """Ask for a colour."""
    raise CallDeferred(kind="question")


def ask_name(first: str, second: str) -> str:
    """Ask for a name."""
    raise CallDeferred(kind="question")


def invite() -> Party:
    """Ask who comes."""
    raise CallDeferred(kind="question")


@pytest.mark.parametrize(
    ("tool", "arguments", "reply", "asked", "told"),
    [
        (choose_seats, '{"play": "Hamlet"}', {"seats": "2", "row": "2"}, "Hamlet", '{"seats":2,"row":"balcony"}'),
        (choose_colour, "{}", "2", "Ask for a colour.", "blue"),
        (ask_name, '{"first": "a", "second": "b"}', "Viola", "first: a\nsecond: b", "Viola"),
        (choose_seats, '{"play": "Hamlet"}', False, "Hamlet", "the question was declined"),
        (choose_seats, '{"play": "Hamlet"}', None, "Hamlet", "no answer came in time"),
        (invite, "{}", None, None, "invite cannot ask the user, because the field 'guests'"),
    ],
)
async def test_a_deferred_question_is_asked_and_its_answer_is_the_result(
    tool: Any, arguments: str, reply: Any, asked: str | None, told: str, tmp_path: Path
) -> None:
    script = scenario([calls((tool.__name__, arguments)), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(tool), script, tmp_path)
    questions = [event for event in seen.events if isinstance(event, InputRequest)]
    assert [question.message for question in questions] == ([] if asked is None else [asked])
    assert [question.kind for question in questions] == ["form" if tool is choose_seats else "input"] * len(questions)
    assert told in seen.sent()[-1]
    assert seen.lines(in_order=True)[-2:] == ["say Fine.", "done stop"]
    is_answered = asked is not None and isinstance(reply, dict | str)
    assert len(errors(seen)) == (not is_answered)
    assert any(line.startswith("result 1 ") for line in seen.lines(in_order=True)) == is_answered
