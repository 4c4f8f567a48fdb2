"""An answer as plain lines, which scripts read."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

from hypothesis import given
from hypothesis import strategies as st

from callboard._cli.chat.answer import Answer
from callboard._cli.chat.displays import Plain
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Reasoning,
    Rewind,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallStart,
)

QUESTION = InputRequest(request_id="q", kind="confirmation", title="Sure?")


def show(events: Sequence[Event], *, is_verbose: bool = False) -> tuple[str, str, str]:
    """Standard output, standard error, and the text of the answer."""
    out, beside = io.StringIO(), io.StringIO()
    display = Plain(Answer(), is_verbose=is_verbose)
    with redirect_stdout(out), redirect_stderr(beside):
        for event in (*events, Done()):
            display.take("", event)
            display.tick()
        display.end()
    lines = beside.getvalue().splitlines(keepends=True)
    # But for how long it took.
    return out.getvalue(), "".join(lines[:-1]), display.answer.text


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


@given(st.lists(EVENTS, max_size=12), st.booleans())
def test_standard_output_is_the_text_of_the_answer(events: list[Event], is_verbose: bool) -> None:
    out, _, said = show(events, is_verbose=is_verbose)
    assert out == (f"{said}\n" if said else "")


def test_thoughts_are_shown_only_with_verbose() -> None:
    events = [Reasoning(content="A thought."), Message(content="\n\n"), Message(content="Hi")]
    assert show(events)[:2] == ("Hi\n", "")


def test_thoughts_that_are_asked_for_are_shown_once() -> None:
    events = [
        Reasoning(content="A thought "),
        Reasoning(content="of two."),
        Message(content="\n"),
        Message(content="Hi"),
    ]
    _, beside, _ = show(events, is_verbose=True)
    assert beside.split() == ["A", "thought", "of", "two."]
