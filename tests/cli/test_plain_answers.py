"""An answer as plain lines: what a script reads, and what stands in a terminal that nothing is drawn in."""

import io
from collections.abc import Sequence

import pytest
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


class Output(io.StringIO):
    """What was written to a terminal, or to a file."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def show(events: Sequence[Event], *, is_verbose: bool = False, is_terminal: bool = False) -> tuple[str, str, str]:
    """What is written of the answer, what beside it, and what the answer says."""
    out, beside = Output(is_terminal=is_terminal), Output(is_terminal=is_terminal)
    display = Plain(Answer(), out, beside, is_verbose=is_verbose)
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
def test_what_a_script_reads_is_what_the_agent_said(events: list[Event], is_verbose: bool) -> None:
    out, _, said = show(events, is_verbose=is_verbose)
    assert out == (f"{said}\n" if said else "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_thought_is_shown_that_nobody_asked_for(is_terminal: bool) -> None:
    events = [Reasoning(content="A thought."), Message(content="\n\n"), Message(content="Hi")]
    assert show(events, is_terminal=is_terminal)[:2] == ("Hi\n", "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_thoughts_that_are_asked_for_are_shown_once(is_terminal: bool) -> None:
    events = [
        Reasoning(content="A thought "),
        Reasoning(content="of two."),
        Message(content="\n"),
        Message(content="Hi"),
    ]
    _, beside, _ = show(events, is_verbose=True, is_terminal=is_terminal)
    assert beside.split() == ["A", "thought", "of", "two."]


@pytest.mark.parametrize(
    "between", [[QUESTION], [QUESTION, Message(content="\n")], [started("a"), Message(content=" ")]]
)
def test_what_follows_a_question_or_a_call_in_a_terminal_is_shown_once_and_apart(between: list[Event]) -> None:
    events = [Message(content="Before."), *between, Message(content="After"), Message(content=" all.")]
    out, _, said = show(events, is_terminal=True)
    assert out.split("\n")[0] == "Before."
    assert out.split() == said.split()


def test_in_a_terminal_texts_of_which_nothing_is_between_are_paragraphs() -> None:
    out, _, said = show([Message(content="Before."), QUESTION, Message(content="After.")], is_terminal=True)
    assert out == f"{said}\n"


def test_what_a_rewind_leaves_is_not_written_again() -> None:
    events = [Message(content="Kept. "), started("a"), Message(content="Wrong."), Rewind(), Message(content="\n")]
    out, _, _ = show([*events, Message(content="Right.")], is_terminal=True)
    assert out.split() == ["Kept.", "Wrong.", "Right."]
