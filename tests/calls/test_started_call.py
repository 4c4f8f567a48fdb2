"""Running and ended calls, made from the events of a run."""

import pytest

from callboard.calls import EndedCall, RunningCall, follow_call
from callboard.calls.call import MAX_STEPS, label_call
from callboard.calls.context import CallClock
from callboard_protocol import (
    Event,
    Message,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)

START = ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"word": "né"})


def follow(*events: Event) -> RunningCall | EndedCall:
    """The call "a" after these events."""
    calls: dict[str, RunningCall | EndedCall] = {}
    for event in (START, *events):
        follow_call(calls, event)
    return calls["a"]


def step(status: str, message: str = "", progress: float | None = None) -> ToolStatus:
    return ToolStatus(tool_call_id="a", data=ToolStatusData(status=status, message=message, progress=progress))


def test_running_call_has_the_facts_of_its_start_and_steps() -> None:
    asked = step("pending", "waiting for approval")
    assert follow(asked).status == "waiting"
    call = follow(asked, step("processing", "half", 50), step("processing", "more"))
    assert isinstance(call, RunningCall)
    assert (call.id, call.name, call.arguments_text) == ("a", "look", '{"word": "né"}')
    assert (call.status, call.progress, call.last_message) == ("running", 50, "more")


def test_call_has_the_arguments_that_its_user_has_changed() -> None:
    data = ToolStatusData(status="changed", message="arguments changed by the user", arguments={"word": "oui"})
    changed = follow(ToolStatus(tool_call_id="a", data=data), ToolCallComplete(tool_call_id="a", result="yes"))
    assert (changed.arguments_text, changed.is_changed) == ('{"word": "oui"}', True)
    # A tool may report a status of that name.
    assert not follow(step("changed", "3 rows")).is_changed


def test_beyond_the_limit_of_steps_only_the_newest_is_kept() -> None:
    steps = [step("processing", str(number)) for number in range(MAX_STEPS + 1)]
    call = follow(*steps)
    assert [step.message for step in call.steps] == [*map(str, range(MAX_STEPS - 1)), str(MAX_STEPS)]


def test_events_that_belong_to_no_running_call_change_nothing() -> None:
    calls: dict[str, RunningCall | EndedCall] = {}
    end = ToolCallComplete(tool_call_id="a", result="x")
    assert [follow_call(calls, event) for event in (Message(content="x"), step("processing"), end)] == [None] * 3
    for event in (START, end):
        follow_call(calls, event)
    assert [follow_call(calls, event) for event in (step("processing"), end)] == [None, None]


def test_ended_call_has_the_result_that_the_model_reads_and_declined_is_no_failure() -> None:
    cut = follow(ToolCallComplete(tool_call_id="a", result="abc", truncated=True, result_chars=5_000))
    assert cut.result_text == "abc\n… [4,997 more characters]"
    for error in ("no such word", "Error: no such word"):
        failed = follow(ToolCallError(tool_call_id="a", error=error))
        assert (failed.result_text, failed.status, failed.is_failed) == ("Error: no such word", "error", True)
    declined = follow(ToolCallError(tool_call_id="a", error="Not run: the user refused it.", code="denied"))
    assert (declined.status, declined.is_failed, declined.has_run) == ("declined", False, False)
    assert declined.display_text == "Declined: it was not run."


def test_the_clock_of_a_call_stands_still_while_any_question_is_open() -> None:
    clock = CallClock()
    with clock.waiting():
        stopped_at_ms = clock.elapsed_ms
        with clock.waiting():
            assert clock.elapsed_ms == stopped_at_ms
        assert clock.elapsed_ms == stopped_at_ms
    assert stopped_at_ms <= clock.elapsed_ms < stopped_at_ms + 60_000


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({}, "look"),
        ('{"city": "Oslo", "unit": "C"}', "look · Oslo"),
        ({"days": 3}, "look · 3"),
        ({"deep": True, "where": {"city": "Oslo"}, "names": ["Ann"], "city": "Oslo"}, "look · Oslo"),
        ({"blank": " ", "text": "two\nlines", "turned": "a\u202eb", "path": "notes.md"}, "look · notes.md"),
        ({"prompt": "a long sentence " * 10}, "look · a long sentence a long sentence a long sentence a long sent…"),
        ("[1, 2]", "look"),
        ("[" * 100_000, "look"),
    ],
)
def test_label_has_the_first_argument_that_is_one_line_of_text(arguments: str | dict[str, object], label: str) -> None:
    assert label_call("look", arguments) == label
