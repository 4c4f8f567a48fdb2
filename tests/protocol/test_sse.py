"""The encoding of events: one frame each, which can be decoded however the stream is split."""

import json
from collections import deque
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard_protocol import (
    Decoder,
    Frame,
    FrameError,
    FrameTooLong,
    Message,
    RunStart,
    ToolCallComplete,
    decode,
    encode,
)

STREAM = (
    b": ping\n\n"
    b'id: 1\ndata: {"type":"message","content":"a"}\n\n'
    b"id: 2\r\ndata: one\r\ndata: \xc3\xa4\xf0\x9f\x98\x80\r\n\r\n"
    b"id: 3\rdata: carriage\r\r"
    b"event: named\nretry: 5\ndata\ndata: last\n\n"
)
FRAMES = [
    Frame("1", '{"type":"message","content":"a"}'),
    Frame("2", "one\nä😀"),
    Frame("3", "carriage"),
    Frame("3", "\nlast", "named"),
]


def test_a_stream_is_read_the_same_whole_and_split_at_every_two_places() -> None:
    for first in range(len(STREAM) + 1):
        for second in range(first, len(STREAM) + 1):
            decoder = Decoder()
            parts = (STREAM[:first], STREAM[first:second], STREAM[second:])
            assert [frame for part in parts for frame in decoder.feed(part)] == FRAMES


def test_a_byte_order_mark_is_dropped_at_the_start_and_only_there() -> None:
    decoder = Decoder()
    stream = b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"
    frames = [frame for index in range(len(stream)) for frame in decoder.feed(stream[index : index + 1])]
    assert frames == [Frame("", "a"), Frame("", "\ufeffb")]


def test_a_carriage_return_ends_its_frame_without_waiting_for_more() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\r\r") == [Frame("", "a")]
    assert decoder.feed(b"\ndata: b\n\n") == [Frame("", "b")]


@pytest.mark.parametrize("endless", [b"data: ", b"x" * 40, b"data: more\n", b": ping\n", b"\rdata: 1"])
def test_a_frame_without_an_end_raises_at_the_limit(endless: bytes) -> None:
    decoder = Decoder(max_frame_bytes=1000)
    assert len(decoder.feed(b"id: 1\ndata: whole\n\n" * 100)) == 100
    pieces = repeat(endless)
    with pytest.raises(FrameTooLong, match="1000 bytes"):
        deque(map(decoder.feed, pieces), maxlen=0)


@given(st.text())
def test_a_frame_is_one_ascii_line_of_data_whatever_the_text(text: str) -> None:
    frame = encode(7, Message(content=text))
    assert frame.isascii()
    assert frame.splitlines() == [b"id: 7", frame.splitlines()[1], b""]
    [read] = Decoder().feed(frame)
    assert read.id == "7"
    event = decode(read)
    assert isinstance(event, Message)
    assert event.content == text


def test_an_unknown_type_is_none_and_unknown_fields_are_ignored() -> None:
    assert decode(Frame("1", '{"type":"hologram","x":1}')) is None
    assert decode(Frame("1", '{"type":"message","content":"a","mood":"good"}')) == Message(content="a")


@pytest.mark.parametrize(
    "data",
    [
        "not json",
        "[]",
        "{}",
        '{"type": 5}',
        '{"type":"message"}',
        '{"type":"tool:status","tool_call_id":"a","data":{"status":"x","progress":101}}',
    ],
)
def test_a_frame_that_cannot_be_read_says_which_one(data: str) -> None:
    with pytest.raises(FrameError, match="frame 9"):
        decode(Frame("9", data))


def test_events_are_frozen_and_keep_their_type_on_the_wire() -> None:
    event = ToolCallComplete(tool_call_id="call_1", tool_name="read", result="ok", result_chars=2)
    payload = json.loads(encode(1, event).splitlines()[1].removeprefix(b"data: "))
    assert payload == {
        "type": "tool_call_complete",
        "tool_call_id": "call_1",
        "tool_name": "read",
        "result": "ok",
        "truncated": False,
        "result_chars": 2,
        "duration_ms": None,
        "files": [],
        "embeds": [],
        "result_url": None,
    }
    with pytest.raises(ValueError, match="frozen"):
        RunStart(run_id="r", agent="a").run_id = "other"
