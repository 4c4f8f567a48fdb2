"""Reads the stored events of a left run: one that its server has stopped running without ending it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from callboard.calls.approval import CHANGED, PENDING, is_approval
from callboard.calls.call import REPAIRED, EndedCall, RunningCall, follow_call
from callboard.storage import RunLog, RunSignals
from callboard.threads import REQUESTS
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
    ToolCallStart,
    decode,
)

READ_BYTES = 1024 * 1024
STATUSES_BEFORE_RUNNING = frozenset({FROM_TEXT_STATUS, PENDING, REPAIRED, CHANGED})
"""The statuses that a call reports before its tool runs; any other status means that the tool has started."""

LEFT_RUN = Error(message="The server that ran this was stopped: send the message again.", code="interrupted")
NO_SIGNALS = RunSignals(is_cancelled=False, answers={})


@dataclass(frozen=True, slots=True)
class LeftRun:
    """The state of a run according to its stored events, for the server that continues it.

    Attributes:
        call_ids: The ids of the agent's own calls.
        open_calls: The start events of calls without an end, by call ids.
        waiting: The open calls that wait for the user's approval; their tools have not run.
        from_text: The open calls that were read from the model's text although it was not asked to write calls there.
        changed: The open calls whose arguments the user has changed.
        begun: The open calls whose tools may have started.
        next_round: The round of the next call.
        has_open_text: Text was sent after the last event of a call.
        sources: The sources that were sent.
        signals: Cancellation and answers that clients have sent.
    """

    call_ids: frozenset[str] = frozenset()
    open_calls: Mapping[str, ToolCallStart] = field(default_factory=dict)
    waiting: Collection[str] = ()
    from_text: Collection[str] = ()
    changed: Collection[str] = ()
    begun: Collection[str] = ()
    next_round: int = 0
    has_open_text: bool = False
    sources: Sequence[Source] = ()
    signals: RunSignals = NO_SIGNALS

    @property
    def is_unparked(self) -> bool:
        """Whether the run was parked, and goes on with the user's answer now."""
        return self.signals.has_waited and bool(self.waiting) and not self.signals.is_cancelled


async def read_left_run(run_log: RunLog, run_id: str) -> LeftRun:
    """Return the state of a run according to its stored events."""
    frames: list[bytes] = []
    while found := await run_log.read(run_id, len(frames), READ_BYTES):
        frames += found
    signals = (await run_log.signals([run_id])).get(run_id, NO_SIGNALS)
    # In a thread, because decoding the events of a long answer would block other requests.
    return await REQUESTS.run(partial(_read, frames, signals))


def _read(frames: Sequence[bytes], signals: RunSignals) -> LeftRun:
    calls: dict[str, RunningCall | EndedCall] = {}
    asked: set[str] = set()
    sources: list[Source] = []
    has_open_text = False
    for frame in Decoder().feed(b"".join(frames)):
        event = decode(frame)
        match event:
            case InputRequest(tool_call_id=str() as call_id, request_id=request_id) if is_approval(request_id):
                asked.add(call_id)
            case Source():
                sources.append(event)
            case Message() | Reasoning():
                has_open_text = True
            case CallEvent():
                follow_call(calls, event)
                has_open_text = False
            case Rewind():
                has_open_text = False
            case _:
                pass
    running = {call_id: call for call_id, call in calls.items() if isinstance(call, RunningCall)}
    begun = {
        call_id
        for call_id, call in running.items()
        if any(step.status not in STATUSES_BEFORE_RUNNING for step in call.steps)
    }
    return LeftRun(
        call_ids=frozenset(call_id for call_id, call in calls.items() if not call.start.parent_call_id),
        open_calls={call_id: call.start for call_id, call in running.items()},
        waiting=running.keys() & asked - begun,
        from_text={call_id for call_id, call in running.items() if call.is_from_text},
        changed={call_id for call_id, call in running.items() if call.is_changed},
        begun=begun,
        next_round=max(((call.start.round_index or 0) + 1 for call in calls.values()), default=0),
        has_open_text=has_open_text,
        sources=sources,
        signals=signals,
    )


def end_of_left_run(agent_id: str) -> Error:
    """Return the last event of a run whose agent cannot continue another server's run."""
    return Error(
        message=f"The server that ran this was stopped, and the agent '{agent_id}' does not go on with what another "
        "server has begun: send the message again.",
        code="interrupted",
    )
