"""The protocol's promises, checked on the events that a listener saw."""

from collections.abc import Sequence

from callboard_protocol import (
    Decoder,
    Event,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    decode,
)
from callboard_protocol.endings import find_ending
from callboard_protocol.events import TERMINAL
from callboard_protocol.wire import MAX_FRAME_BYTES


def read(stream: bytes) -> list[tuple[int, Event]]:
    """Return the numbered events of a stream; fail on a frame over the limit."""
    assert all(len(frame) + 2 <= MAX_FRAME_BYTES for frame in stream.split(b"\n\n"))
    events = []
    for frame in Decoder().feed(stream):
        event = decode(frame)
        assert event is not None
        events.append((int(frame.id), event))
    return events


def check(numbered: Sequence[tuple[int, Event]], seen_before: frozenset[str] = frozenset()) -> None:
    """Check promises 1 to 5 of ARCHITECTURE.md on the events of a whole run."""
    assert [seq for seq, _ in numbered] == list(range(1, len(numbered) + 1))
    events = [event for _, event in numbered]
    assert isinstance(events[0], RunStart)
    assert isinstance(events[-1], TERMINAL)
    assert sum(isinstance(event, (RunStart, *TERMINAL)) for event in events) == 2
    started: list[str] = []
    open_calls: set[str] = set()
    written: set[str] = set()
    for event in events:
        match event:
            case ToolCallArgsDelta():
                assert event.tool_call_id not in started
                written.add(event.tool_call_id)
            case ToolCallError(code="interrupted") if event.tool_call_id in written:
                # The server was killed before the call started.
                written.remove(event.tool_call_id)
                started.append(event.tool_call_id)
            case ToolCallStart():
                written.discard(event.tool_call_id)
                assert event.tool_call_id
                assert event.tool_call_id not in seen_before
                assert event.tool_call_id not in started
                started.append(event.tool_call_id)
                open_calls.add(event.tool_call_id)
            case ToolStatus():
                assert event.tool_call_id in open_calls
            case ToolCallComplete() | ToolCallError():
                open_calls.remove(event.tool_call_id)
                never_ran = isinstance(event, ToolCallError) and not find_ending(event.code).has_run
                # The time of a call whose server was killed is not known.
                is_unknown = isinstance(event, ToolCallError) and event.code == "interrupted"
                assert (event.duration_ms is None) == never_ran or is_unknown
            case _:
                pass
    assert not open_calls
