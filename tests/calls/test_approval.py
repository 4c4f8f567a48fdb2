"""Whether a call asks its user before it runs, and the words of the question."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard.agents import Agent
from callboard.calls import tool
from callboard.calls.approval import APPROVED, Approval, list_arguments
from callboard.errors import ToolDenied, ToolNotAnswered, ToolNotAsked
from callboard.skills import Skill
from callboard_protocol import Done, ToolCallComplete, ToolCallError
from tests.fakes.openai_server import call, chunks, finish, text
from tests.serving import request
from tests.skills.calling import serving_model


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, "No arguments."),
        ({"play": "Hamlet", "late": True, "box": None, "note": ""}, 'play: Hamlet\nlate: true\nbox: null\nnote: ""'),
        ({"text": "Dear Ada,\nHello \\n.\n", "to": "ada"}, "text:\n    Dear Ada,\n    Hello \\n.\n    \nto: ada"),
        (
            {"mails": [{"to": "ada", "text": "Dear Ada,\nHello."}, 3], "options": {}, "tags": ["a\n- b"]},
            "mails:\n    - to: ada\n      text:\n          Dear Ada,\n          Hello.\n    - 3\n"
            "options:\n    {}\ntags:\n    - a\n      - b",
        ),
        ({"a\nseats: 2": "x\nseats: 3"}, '"a\\nseats: 2":\n    x\n    seats: 3'),
    ],
)
def test_arguments_are_labelled_lines_and_no_value_looks_like_a_label(arguments: dict[str, Any], shown: str) -> None:
    assert list_arguments(arguments) == shown


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (False, ToolDenied),
        (None, ToolNotAnswered),
        (1, ToolNotAnswered),
        ("yes", ToolNotAnswered),
        ({"approved": True}, ToolNotAnswered),
    ],
)
def test_only_true_approves_and_only_false_refuses(answer: object, error: type[ToolDenied]) -> None:
    approval = Approval()
    question = approval.request("pay", {}, "c" * 512, fingerprint="f")
    assert approval.apply(True, question) == APPROVED
    with pytest.raises(ToolDenied) as raised:
        approval.apply(answer, question)
    assert type(raised.value) is error


def test_arguments_too_long_to_be_read_are_not_approved_by_anybody() -> None:
    with pytest.raises(ToolNotAsked, match="too long to be approved"):
        Approval().request("post", {"text": "x" * 9000}, "c")


CALLS = [("pay", {"to": "ann"}), ("look", {})]


@pytest.mark.parametrize("check", ["requires_confirmation", "changes"])
async def test_failing_check_of_the_author_fails_only_its_own_call(tmp_path: Path, check: str) -> None:
    paid: list[str] = []

    def is_large(arguments: Any) -> bool:
        return bool(arguments["amount"] > 100)

    asks, changes = (is_large, None) if check == "requires_confirmation" else (False, is_large)

    @tool(requires_confirmation=asks, changes=changes)
    async def pay(to: str, amount: float | None = None) -> str:
        """Pays."""
        paid.append(to)
        return "paid"

    @tool(read_only=True, changes=lambda _: False)
    async def look() -> str:
        """Looks."""
        return "seen"

    calls = [call(name, json.dumps(given), call_id=name, index=index) for index, (name, given) in enumerate(CALLS)]
    turns = [chunks(*calls, finish("tool_calls")), chunks(text("There."), finish("stop"))]
    agent = Agent("scripted", skills=(Skill("shop", "Pays.", tools=(pay, look)),), confirm=("*",))
    async with serving_model(tmp_path, turns, agent) as (service, _):
        with capture_logs() as logs:
            events = await service.events(request())
    [error] = [event.error for event in events if isinstance(event, ToolCallError)]
    assert error.startswith("Not run: the check whether it needs approval failed (TypeError: '>' not supported")
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["seen"]
    assert isinstance(events[-1], Done)
    assert paid == []
    [line] = [line for line in logs if line["event"] == "approval_check_failed"]
    assert (line["tool"], type(line["exc_info"])) == ("pay", TypeError)
