"""Makes the rows and the frames of a run agree before a server goes on with it.

They are written side by side, so that when a server is killed either may be a step ahead: nobody is to be told of a
call otherwise than the model is.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from callboard._history import ChatJournal, StoredTurn
from callboard._runs.left_run import LeftRun, read_left_run
from callboard._runs.truncation import truncate
from callboard.storage import INTERRUPTED_CALL, UNANSWERED_CALL, Chats, LoggedFrame, LoggedRun, RunLog, StoredCall
from callboard_protocol import (
    Done,
    Event,
    FinishReason,
    Message,
    Rewind,
    RunStart,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    encode,
)


async def reconcile(run_log: RunLog, logged: LoggedRun, chats: Chats, journal: ChatJournal) -> LeftRun | None:
    """Write to the journal what listeners have seen and it does not have, and to the log what they have not seen.

    Return what is left then; None where the run's end was all that was missing.
    """
    left = await read_left_run(run_log, logged.run_id)
    turn = await find_turn(chats, logged)
    if turn is None:
        return left
    kept = await chats.timeline(str(logged.chat_id))
    calls = {call.tool_call_id: call for call in kept if call.run_id == logged.run_id}
    for call_id, end in left.ended.items():
        if call_id in calls and calls[call_id].ended_at is None:
            await journal.call_ended(call_id, *_outcome_of(end))
    unseen = find_unseen(left, turn, calls)
    if not unseen:
        return left
    first = [] if left.frames else [RunStart(run_id=logged.run_id, agent=logged.agent_id)]
    events = enumerate([*first, *unseen], len(left.frames) + 1)
    frames = [LoggedFrame(encode(seq, event), is_last=isinstance(event, Done)) for seq, event in events]
    # It may have been tried before, and the store been lost in the middle.
    await run_log.append(replace(logged, last_seq=len(left.frames)), frames)
    return None if frames[-1].is_last else await read_left_run(run_log, logged.run_id)


async def close_calls(run_log: RunLog, logged: LoggedRun, left: LeftRun, again: Collection[str]) -> LeftRun:
    """End the calls that are open, but for those that run again, in rows and frames; return what is left then."""
    await run_log.close_calls(logged.run_id, again, left.waiting)
    ends = find_ends(left, again)
    closing = frames_after(left, ends)
    if closing:
        await run_log.append(replace(logged, last_seq=len(left.frames)), closing)
    return replace(
        left,
        frames=[*left.frames, *(frame.frame for frame in closing)],
        closed=ends,
        open_calls={call_id: start for call_id, start in left.open_calls.items() if call_id in again},
    )


async def find_turn(chats: Chats, logged: LoggedRun) -> StoredTurn | None:
    """Return what is stored of a run, None where nothing is."""
    turns = await chats.turns(str(logged.chat_id))
    return next((turn for turn in turns if turn.run_id == logged.run_id), None)


def find_unseen(left: LeftRun, turn: StoredTurn, calls: Mapping[str, StoredCall]) -> list[Event]:
    """Return what is stored of the run and was not seen by listeners; `calls` are its calls by their ids.

    A turn that has its last text lacks no more than its end, with which it is told.
    """
    events: list[Event] = []
    said = left.open_text
    for one in turn.rounds:
        of_round = [calls[call["id"]] for call in one.calls if call["id"] in calls]
        if of_round and not any(call.tool_call_id in left.call_ids for call in of_round):
            events += _complete_text(said, one.text)
            said = ""
        for call in of_round:
            if call.tool_call_id not in left.call_ids:
                events.append(_start_of(call))
        for call in of_round:
            if call.tool_call_id not in left.ended and call.ended_at is not None:
                events.append(_end_of(call))
    if turn.last_text:
        reason: FinishReason = "cancelled" if left.orders.is_cancelled else "stop"
        events += [*_complete_text(said, turn.last_text), Done(finish_reason=reason)]
    return [fitting for event in events for fitting in truncate(event)]


def find_ends(left: LeftRun, but: Collection[str] = ()) -> list[ToolCallError]:
    """Return the ends of the calls that are open, but for some."""
    return [
        ToolCallError(
            tool_call_id=call_id,
            tool_name=start.tool_name,
            error=UNANSWERED_CALL if call_id in left.waiting else INTERRUPTED_CALL,
            code="interrupted",
            duration_ms=0,
        )
        for call_id, start in left.open_calls.items()
        if call_id not in but
    ]


def frames_after(left: LeftRun, events: Sequence[Event]) -> list[LoggedFrame]:
    """Return the frames of events that follow those of a run."""
    return [LoggedFrame(encode(seq, event)) for seq, event in enumerate(events, len(left.frames) + 1)]


def _complete_text(said: str, whole: str) -> list[Event]:
    """Return what makes of a text that listeners have seen the one that is stored."""
    if said == whole:
        return []
    if whole.startswith(said):
        return [Message(content=whole[len(said) :])]
    return [Rewind(), Message(content=whole)]


def _outcome_of(end: ToolCallComplete | ToolCallError) -> tuple[str, str | None, int | None]:
    """Return an end as it is stored: the output, the error's code, the duration in ms."""
    if isinstance(end, ToolCallError):
        return f"Error: {end.error}", end.code, end.duration_ms
    return end.result, None, end.duration_ms


def _start_of(call: StoredCall) -> ToolCallStart:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.arguments
    return ToolCallStart(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        tool_args=arguments if isinstance(arguments, dict) else call.arguments,
        round_index=call.round_index,
        sequence_index=call.sequence_index,
    )


def _end_of(call: StoredCall) -> ToolCallComplete | ToolCallError:
    output = call.result or ""
    duration_ms = call.duration_ms
    if call.error_code is not None:
        error = output.removeprefix("Error: ")
        return ToolCallError(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            error=error,
            code=call.error_code,
            duration_ms=duration_ms,
        )
    return ToolCallComplete(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        result=output,
        result_chars=len(output),
        duration_ms=duration_ms,
    )
