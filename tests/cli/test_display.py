"""An answer as plain lines, which scripts read, and the text that is drawn in a terminal."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from callboard._cli.chat.display import Display, make_console
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Plan,
    PlanStep,
    Reasoning,
    Rewind,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallStart,
)

QUESTION = InputRequest(request_id="q", kind="confirmation", title="Sure?")


def show(events: Sequence[Event]) -> tuple[str, str, str]:
    """Standard output, standard error, and the text of the answer."""
    out, beside = io.StringIO(), io.StringIO()
    display = Display(make_console(beside))
    with redirect_stdout(out), redirect_stderr(beside):
        for event in (*events, Done()):
            display.show(event)
            display.refresh()
        display.end()
    lines = beside.getvalue().splitlines(keepends=True)
    # But for how long it took.
    return out.getvalue(), "".join(lines[:-1]), display.text


def started(call_id: str) -> ToolCallStart:
    return ToolCallStart(tool_call_id=call_id, tool_name="look", tool_args={})


TEXTS = st.text("ab \n", min_size=1, max_size=6)
CALL_IDS = st.sampled_from("xyz")
EVENTS = st.one_of(
    TEXTS.map(lambda text: Message(content=text)),
    TEXTS.map(lambda text: Reasoning(content=text)),
    st.sampled_from([QUESTION, Rewind()]),
    CALL_IDS.map(lambda call_id: ToolCallArgsDelta(tool_call_id=call_id, tool_name="look", delta="{")),
    CALL_IDS.map(started),
    CALL_IDS.map(lambda call_id: ToolCallComplete(tool_call_id=call_id, tool_name="look", result="it")),
)


@given(st.lists(EVENTS, max_size=12))
def test_standard_output_is_the_text_of_the_answer(events: list[Event]) -> None:
    out, _, said = show(events)
    assert out == (f"{said}\n" if said else "")


def test_thoughts_are_not_shown() -> None:
    events = [Reasoning(content="A thought."), Message(content="\n\n"), Message(content="Hi")]
    assert show(events)[:2] == ("Hi\n", "")


def test_plan_is_a_line_of_standard_error() -> None:
    steps = [PlanStep(id="1", content="Look", state="completed"), PlanStep(id="2", content="Wr\nite", state="pending")]
    _, beside, _ = show([Plan(steps=tuple(steps))])
    assert beside == "· Plan: 1 of 2: Wr ite\n"


@given(st.lists(st.sampled_from(["a ", "bc ", "defg ", " ", "\n"]), max_size=20))
def test_drawn_text_has_the_words_of_the_answer_and_no_row_is_too_long(parts: list[str]) -> None:
    printed = io.StringIO()
    display = Display(Console(file=printed, width=10), "drawn")
    for part in parts:
        display.show(Message(content=part))
    display.show(Done())
    assert printed.getvalue().split() == "".join(parts).split()
    assert all(len(row) <= 10 for row in printed.getvalue().splitlines())
