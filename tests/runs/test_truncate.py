"""Every event fits its frame, whatever an agent yields."""

from typing import Any

import pytest

from callboard.runs.outgoing_events import truncate
from callboard_protocol import (
    Error,
    Event,
    InputRequest,
    Message,
    Reasoning,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    encode,
)
from callboard_protocol.wire import MAX_FRAME_BYTES

LONG = "\N{GRINNING FACE}" * 300_000
DEEP: dict[str, Any] = {"name": LONG, "url": "https://example.org/"}


@pytest.mark.parametrize(
    "event",
    [
        Message(content=LONG),
        Reasoning(content=LONG),
        Status(content=LONG),
        Error(message=LONG, code=LONG),
        ToolCallArgsDelta(tool_call_id="c", tool_name=LONG, delta=LONG),
        ToolCallStart(tool_call_id="c", tool_name=LONG, tool_args=LONG),
        ToolCallStart(tool_call_id="c", tool_name=LONG, tool_args=DEEP),
        ToolStatus(tool_call_id="c", data=ToolStatusData(status=LONG, message=LONG)),
        ToolCallComplete(tool_call_id="c", tool_name=LONG, result=LONG, files=(DEEP,), embeds=(LONG,)),
        ToolCallError(tool_call_id="c", tool_name=LONG, error=LONG, code=LONG),
        Source(source=DEEP, document=(LONG,), metadata=(DEEP,)),
        InputRequest(request_id="r", kind="input", title=LONG, message=LONG, placeholder=LONG),
    ],
    ids=lambda event: event.type,
)
def test_event_with_long_fields_fits_the_largest_frame(event: Event) -> None:
    frames = truncate(event)
    assert frames
    assert max(len(encode(1, frame)) for frame in frames) <= MAX_FRAME_BYTES


def test_cut_source_keeps_its_short_fields() -> None:
    [frame] = truncate(Source(source=DEEP))
    assert isinstance(frame, Source)
    assert frame.source == {"url": "https://example.org/"}
