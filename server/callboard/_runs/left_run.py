"""Reads the stored events of a left run: a run whose server has stopped without ending it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from callboard._threads import REQUESTS
from callboard.calls.approval import PENDING, is_approval
from callboard.calls.call import REPAIRED
from callboard.storage import Orders, RunLog
from callboard_protocol import (
    FROM_TEXT_STATUS,
    CallEvent,
    Decoder,
    Error,
    InputRequest,
    Message,
    Reasoning,
    Rewind,
    Source,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    decode,
)

READ_BYTES = 1024 * 1024
STATUSES_BEFORE_RUNNING = frozenset({FROM_TEXT_STATUS, PENDING, REPAIRED})
"""The statuses that a call reports before its tool runs; any other status means that the tool has started."""

LEFT_RUN = Error(message="The server that ran this was stopped: send the message again.", code="interrupted")
NO_SIGNALS = Orders(is_cancelled=False, answers={})


@dataclass(frozen=True, slots=True)
class LeftRun:
    """The state of a run according to its stored events, for the server that continues it.

    Attributes:
        call_ids: The ids of the agent's own calls.
        open_calls: The start events of calls without an end, by call ids.
        waiting: The open calls that wait for the user's approval; their tools have not run.
        begun: The calls whose tools have started.
        next_round: The round of the next call.
        has_open_text: Text was sent after the last event of a call.
        sources: The sources that were sent.
        signals: Cancellation and answers that clients have sent.
    """

    call_ids: frozenset[str] = frozenset()
    open_calls: Mapping[str, ToolCallStart] = field(default_factory=dict)
    waiting: Collection[str] = ()
    begun: Collection[str] = ()
    next_round: int = 0
    has_open_text: bool = False
    sources: Sequence[Source] = ()
    signals: Orders = NO_SIGNALS


async def read_left_run(run_log: RunLog, run_id: str) -> LeftRun:
    """Return the state of a run according to its stored events."""
    frames: list[bytes] = []
    while found := await run_log.read(run_id, len(frames), READ_BYTES):
        frames += found
    orders = (await run_log.orders([run_id])).get(run_id, NO_SIGNALS)
    # In a thread, because decoding the events of a long answer would block other requests.
    return await REQUESTS.run(partial(_read, frames, orders))


def _read(frames: Sequence[bytes], orders: Orders) -> LeftRun:
    call_ids: set[str] = set()
    open_calls: dict[str, ToolCallStart] = {}
    asked: set[str] = set()
    begun: set[str] = set()
    sources: list[Source] = []
    next_round = 0
    has_open_text = False
    for frame in Decoder().feed(b"".join(frames)):
        event = decode(frame)
        match event:
            case ToolCallStart(tool_call_id=call_id, round_index=round_index):
                if not event.parent_call_id:
                    call_ids.add(call_id)
                open_calls[call_id] = event
                next_round = max(next_round, (round_index or 0) + 1)
            case ToolCallComplete(tool_call_id=call_id) | ToolCallError(tool_call_id=call_id):
                open_calls.pop(call_id, None)
            case InputRequest(tool_call_id=str() as call_id, request_id=request_id) if is_approval(request_id):
                asked.add(call_id)
            case ToolStatus(tool_call_id=call_id, data=data) if data.status not in STATUSES_BEFORE_RUNNING:
                # The user has approved the call, or the running tool asks another question.
                begun.add(call_id)
            case Source():
                sources.append(event)
            case _:
                pass
        if isinstance(event, Message | Reasoning):
            has_open_text = True
        elif isinstance(event, CallEvent | Rewind):
            has_open_text = False
    waiting = open_calls.keys() & asked - begun
    return LeftRun(frozenset(call_ids), open_calls, waiting, begun, next_round, has_open_text, sources, orders)


def end_of_left_run(agent_id: str) -> Error:
    """Return the last event of a run whose agent cannot continue another server's run."""
    return Error(
        message=f"The server that ran this was stopped, and the agent '{agent_id}' does not go on with what another "
        "server has begun: send the message again.",
        code="interrupted",
    )
