"""The pipe reads frames as the protocol package writes them."""

import json

import pytest

from callboard_protocol import (
    Decoder,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Parked,
    Plan,
    PlanStep,
    Reasoning,
    Rewind,
    RunStart,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallStart,
    ToolRequest,
    ToolStatus,
    ToolStatusData,
    UnreadMessage,
    Usage,
    UserMessage,
    decode,
    encode,
)
from callboard_protocol.events import EVENT_TYPES
from tests.pipe.loader import PIPE

EVENTS: list[Event] = [
    RunStart(run_id="r", agent="assistant"),
    Status(content="Thinking\u2028…"),
    Message(content="a\u0085b\nc\rd\r\n😀 </details>"),
    Reasoning(content="hm"),
    Rewind(),
    UserMessage(message_id="m1", content="Be quick."),
    UnreadMessage(message_id="m2", content="And quiet."),
    ToolCallArgsDelta(tool_call_id="c1", tool_name="draw", delta='{"a'),
    ToolCallStart(tool_call_id="c1", tool_name="draw", tool_args={"a": "{{user}}"}),
    ToolStatus(tool_call_id="c1", data=ToolStatusData(status="processing", message="half", progress=50)),
    ToolCallComplete(tool_call_id="c1", result="fine", files=({"type": "image", "url": "/x.png"},)),
    ToolCallError(tool_call_id="c2", error="no"),
    ToolCallExternal(tool_call_id="c3", tool_name="open_door", arguments='{"room": "attic"}'),
    Plan(steps=(PlanStep(id="1", content="Read", state="in_progress"),)),
    Source(source={"name": "book"}, document=("page",), metadata=({"source": "book"},)),
    InputRequest(request_id="i1", kind="input", title="?"),
    ToolRequest(tool_call_id="c4", request_id="tool:c4", name="weather", arguments={"city": "Rome"}),
    Parked(tool_call_ids=("c1",)),
    Usage(total_tokens=3),
    Done(finish_reason="length"),
    Error(message="boom"),
]
WIRE = b": ping\n\n".join(encode(seq, event) for seq, event in enumerate(EVENTS, 1))


def read(*chunks: bytes) -> list[tuple[str, str]]:
    decoder = PIPE.FrameDecoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


def test_the_fixture_has_every_event_type() -> None:
    assert {event.type for event in EVENTS} == EVENT_TYPES


def test_both_decoders_read_the_same_events() -> None:
    decoder = Decoder()
    reference = decoder.feed(WIRE)
    assert read(WIRE) == [(frame.id, frame.data) for frame in reference]
    assert [decode(frame) for frame in reference] == EVENTS
    assert [PIPE.read_event(data) for _, data in read(WIRE)] == [
        json.loads(json.dumps(event.model_dump())) for event in EVENTS
    ]


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_a_stream_may_be_cut_at_any_byte(line_end: bytes) -> None:
    wire = WIRE.replace(b"\n", line_end)
    expected = read(wire)
    assert len(expected) == len(EVENTS)
    for cut in range(len(wire) + 1):
        assert read(wire[:cut], wire[cut:]) == expected
    assert read(*(wire[i : i + 1] for i in range(len(wire)))) == expected


@pytest.mark.parametrize("data", ["nonsense", "[]", '{"type": 3}', "[" * 100_000])
def test_a_frame_that_is_no_event_is_logged(data: str, caplog: pytest.LogCaptureFixture) -> None:
    assert PIPE.read_event(data) is None
    assert "cannot be read" in caplog.text
