"""Text that an agent takes back is removed from the answer, with every emitter."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard_protocol import Done, Message, Rewind, RunStart
from tests.pipe.loader import PIPE
from tests.pipe.owui_blocks import reduce, reduce_native, streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_rendering import completed, drawn, failed, message, started
from tests.pipe.test_stream import a_pipe, answer

REWIND = {"type": "rewind"}
Steps = list[list[dict[str, Any]]]


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "content": text}


def announced(call_id: str = "c") -> dict[str, Any]:
    return {"type": "tool_call_args_delta", "tool_call_id": call_id, "tool_name": "draw", "delta": "{"}


def handed_over(emitter: Any, steps: Steps) -> list[dict[str, Any]]:
    """All updates, a second between the steps and before the end."""
    transcript = PIPE.Transcript()
    updates: list[dict[str, Any]] = []
    for seconds, events in enumerate(steps, 100):
        for event in events:
            transcript.apply(event)
        updates += emitter.updates(transcript, seconds)
    transcript.apply({"type": "done", "finish_reason": "stop"})
    return updates + list(emitter.updates(transcript, 100 + len(steps), final=True))


def texts(items: list[dict[str, Any]]) -> str:
    return "\n".join(text for item in items if (text := item["content"][0]["text"]))


def test_three_drafts_leave_the_last() -> None:
    half = message("Half an answer")
    assert drawn(half, REWIND, half, REWIND, message("A whole answer.")).render() == "A whole answer."


def test_a_call_and_what_was_said_before_it_stay() -> None:
    text = drawn(message("Look: "), started(), completed(), message("Half"), REWIND, message("Whole.")).render()
    assert text.startswith("Look: \n\n<details")
    assert text.endswith("</details>\n\nWhole.")


def test_text_that_a_call_ended_in_is_taken_back_to_that_place() -> None:
    events = [started("a"), started("b"), message("While they run, "), completed("1", "a"), message("a draft"), REWIND]
    [_, text] = PIPE.split_segments(drawn(*events, message("an answer")).pieces)
    assert PIPE.render(text) == "While they run, an answer"


def test_a_call_whose_arguments_were_being_written_is_taken_back_and_may_come_again() -> None:
    assert drawn(message("So: "), announced(), REWIND).render() == ""
    [block] = tool_blocks(drawn(announced(), REWIND, announced(), started(), completed("fine")).render())
    assert block.value("result") == "fine"


def test_a_thought_is_taken_back_with_its_text() -> None:
    assert drawn(thought("Hm."), message("Half"), REWIND, message("Whole.")).render() == "Whole."


def test_a_call_after_a_rewind_stands_apart_from_those_before_it() -> None:
    transcript = drawn(started("a"), completed("1", "a"), message("Half"), REWIND, started("b"), completed("2", "b"))
    assert [block.attributes["id"] for block in tool_blocks(transcript.render())] == ["a", "b"]


events = st.sampled_from(
    [
        *(message(text) for text in ("Half. ", "A draft. ", "```\ncode", " ", "<det", "[source1]")),
        thought("Hm."),
        *(announced(call_id) for call_id in "ab"),
        *(started(call_id) for call_id in "abc"),
        *(completed("x" * 9000, call_id) for call_id in "abc"),
        failed("no", "a"),
        REWIND,
        REWIND,
    ]
)
drafts: Steps = [[message("Half an answer")], [REWIND], [message("Another half")], [REWIND, message("A whole answer.")]]
mixed: Steps = [
    [started("a"), completed("1", "a"), thought("Hm."), message("Half")],
    [announced("b"), REWIND],
    [started("c"), completed("2", "c"), thought("So."), message("Whole.")],
]


@given(st.lists(st.lists(events, max_size=5), max_size=10))
@example(drafts)
@example(mixed)
def test_every_emitter_ends_with_what_is_left(steps: Steps) -> None:
    whole = drawn(*(event for step in steps for event in step), {"type": "done", "finish_reason": "stop"}).render()
    shown = texts(reduce(handed_over(PIPE.StreamEmitter(), steps)))
    assert "".join(shown.split()) == "".join(whole.split())
    assert texts(reduce(handed_over(PIPE.WholeEmitter(), steps))) == whole


@given(st.lists(st.lists(events, max_size=5), max_size=10))
@example(drafts)
@example(mixed)
def test_native_items_after_a_rewind_equal_those_without_the_draft(steps: Steps) -> None:
    transcript = drawn(*(event for step in steps for event in step), {"type": "done", "finish_reason": "stop"})
    items = reduce_native(handed_over(PIPE.NativeEmitter(), steps))
    left = [item for item in items if item["type"] != "message" or item["content"][0]["text"]]
    kinds = {PIPE.Text: "message", PIPE.Thought: "reasoning", PIPE.Call: "function_call"}
    told = [(item["type"], item.get("call_id")) for item in left if item["type"] != "function_call_output"]
    # Blank text is no piece to see, and natively no item.
    pieces = [piece for piece in transcript.pieces if not isinstance(piece, PIPE.Text) or piece.text]
    assert told == [(kinds[type(piece)], getattr(piece, "id", None)) for piece in pieces]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert sorted(calls) == sorted(item["call_id"] for item in items if item["type"] == "function_call_output")


def test_chunk_stream_announces_a_rewind_outside_open_code() -> None:
    steps = [[message("```\nHalf")], [REWIND], [message("A whole "), message("answer.")]]
    sent = streamed_content(handed_over(PIPE.ChunkEmitter(), steps))
    assert sent == f"```\nHalf\n```{PIPE.TAKEN_BACK}A whole answer."


def test_chunk_stream_omits_the_notice_if_the_draft_was_unsent_or_repeated() -> None:
    unsent = [[message("Half"), REWIND, message("Whole.")]]
    assert streamed_content(handed_over(PIPE.ChunkEmitter(), unsent)) == "Whole."
    again = [[message("Half")], [REWIND, message("Half and half.")]]
    assert streamed_content(handed_over(PIPE.ChunkEmitter(), again)) == "Half and half."


@pytest.mark.parametrize("streamed", [True, False])
async def test_answer_contains_the_text_left_by_a_rewind(server: ScriptedServer, streamed: bool) -> None:
    half = Message(content="Half an answer")
    whole = Message(content="A whole answer.")
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), half, Rewind(), whole, Done())))
    if streamed:
        assert texts(reduce(await answer(a_pipe(server.url)))) == "A whole answer."
    else:
        assert await a_pipe(server.url).pipe({"model": "p.a", "messages": [], "stream": False}) == "A whole answer."
