"""Text that an agent takes back is removed from the answer, with every emitter."""

from typing import Any

import pytest

from callboard_protocol import Done, Message, Rewind, RunStart
from tests.pipe.loader import PIPE
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_rendering import REWIND, completed, drawn, message, started, thought
from tests.pipe.test_stream import a_pipe, answer

Steps = list[list[dict[str, Any]]]


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
        assert streamed_content(await answer(a_pipe(server.url))) == "A whole answer."
    else:
        assert await a_pipe(server.url).pipe({"model": "p.a", "messages": [], "stream": False}) == "A whole answer."
