"""Text that an agent takes back is removed from the answer, with every emitter."""

from typing import Any

import pytest

from callboard_protocol import Done, Message, Rewind, RunStart
from tests.pipe.loader import PIPE
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_rendering import REWIND, completed, drawn, message, started, thought
from tests.pipe.test_stream import a_pipe


def announced(call_id: str = "c") -> dict[str, Any]:
    return {"type": "tool_call_args_delta", "tool_call_id": call_id, "tool_name": "draw", "delta": "{"}


HALF = message("Half")


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([thought("Hm."), HALF, REWIND, message("Whole.")], "Whole."),
        ([message("Look: "), started(), completed(), HALF, REWIND, message("Whole.")], "Look: {draw}Whole."),
        ([started(), completed(), HALF, REWIND, started("d"), completed("", "d")], "{draw}{draw}"),
    ],
)
def test_what_was_said_since_the_last_call_is_taken_back(events: list[dict[str, Any]], left: str) -> None:
    text = drawn(*events).render()
    for block in tool_blocks(text):
        text = text.replace(block.source, "{draw}", 1)
    assert text.replace("\n", "") == left


def test_text_that_a_call_ended_in_is_taken_back_to_that_place() -> None:
    events = [started("a"), started("b"), message("While they run, "), completed("1", "a"), message("a draft"), REWIND]
    [_, text] = PIPE.split_segments(drawn(*events, message("an answer")).pieces)
    assert PIPE.render(text) == "While they run, an answer"


def test_a_call_whose_arguments_were_being_written_is_taken_back_and_may_come_again() -> None:
    assert drawn(message("So: "), announced(), REWIND).render() == ""
    [block] = tool_blocks(drawn(announced(), REWIND, announced(), started(), completed("fine")).render())
    assert block.value("result") == "fine"


@pytest.mark.parametrize(
    ("steps", "sent"),
    [
        (
            [[message("```\nHalf")], [REWIND], [message("A whole "), message("answer.")]],
            "```\nHalf\n```{}A whole answer.",
        ),
        ([[HALF, REWIND, message("Whole.")]], "Whole."),
        ([[HALF], [REWIND, message("Half and half.")]], "Half and half."),
    ],
    ids=["open code", "unsent", "repeated"],
)
def test_chunk_stream_announces_a_rewind_of_what_it_has_sent(steps: list[list[dict[str, Any]]], sent: str) -> None:
    transcript = PIPE.Transcript()
    emitter = PIPE.ChunkEmitter()
    updates: list[dict[str, Any]] = []
    for seconds, events in enumerate([*steps, [{"type": "done", "finish_reason": "stop"}]], 100):
        for event in events:
            transcript.apply(event)
        updates += emitter.updates(transcript, seconds, final=transcript.ended)
    assert streamed_content(updates) == sent.format(PIPE.TAKEN_BACK)


async def test_answer_without_streaming_has_the_text_left_by_a_rewind(server: ScriptedServer) -> None:
    half = Message(content="Half an answer")
    whole = Message(content="A whole answer.")
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), half, Rewind(), whole, Done())))
    assert await a_pipe(server.url).pipe({"model": "p.a", "messages": [], "stream": False}) == "A whole answer."
