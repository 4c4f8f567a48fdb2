"""Reads, continues or ends a left run: one that its server has stopped running without ending it.

Events and rows were committed together, so they need no reconciliation. The model gets the finished rounds with their
results. Open calls of an `Agent` run again if that is safe, see `_find_repeatable`. The other open calls end with
an error, because it is unknown whether they took effect.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import TypeAdapter
from pydantic_core import to_json

from callboard._history import HistoryCall, StoredTurn
from callboard.agents import Agent, AgentLike
from callboard.calls import ToolCall
from callboard.calls.approval import CHANGED, PENDING, explain_refusal, is_approval, may_allow
from callboard.calls.call import REPAIRED, EndedCall, RunningCall, follow_call, format_error
from callboard.errors import StorageError, ToolDenied
from callboard.redaction import MASK
from callboard.runs.conversation import Conversation, open_conversation
from callboard.runs.inputs import NO_SIGNALS
from callboard.runs.outgoing_events import make_storable, truncate
from callboard.storage import Store
from callboard.storage.rows import INTERRUPTED_CALL, UNANSWERED_CALL
from callboard.storage.sql.run_record import RunRecord
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import RunSignals, StoredFrame, StoredRun
from callboard.threads import REQUESTS
from callboard_protocol import (
    CallEvent,
    Decoder,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Rewind,
    RunRequest,
    Source,
    TextEvent,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallStart,
    ToolRequest,
    ToolStatus,
    decode,
    encode,
)
from callboard_protocol.events import APPROVAL_PREFIX, EXTERNAL_ID_PREFIX, FROM_TEXT_STATUS

READ_BYTES = 1024 * 1024
STATUSES_BEFORE_RUNNING = frozenset({FROM_TEXT_STATUS, PENDING, REPAIRED, CHANGED})
"""The statuses that a call reports before its tool runs; any other status means that the tool has started."""

CANNOT_RUN = (
    "Not run: it was allowed, but its tool has changed since the question, or is not available now. Call it again if "
    "it still fits; then the user is asked again."
)
"""The error of an allowed call, for example if its tool is of an MCP server that has not started yet."""

NOT_STARTED = "Not run: the server stopped before this call started."

STOPPED_DURING_ANSWER = Error(
    message="The server stopped during this answer: send the message again.", code="interrupted"
)

_LAST_EVENT: TypeAdapter[Done | Error] = TypeAdapter(Done | Error)


@dataclass(frozen=True, slots=True)
class LeftRun:
    """The state of a run according to its stored events, for the server that continues it.

    Attributes:
        call_ids: The ids of the agent's own calls.
        open_calls: The calls without an end, by call ids.
        unstarted: The names of the tools of calls that have not started, although another call has started or ended
            since their first arguments, by call ids. A `Rewind` does not remove them.
        fingerprints: The fingerprints of the tools of calls that the user was asked to approve, by call ids.
        unapproved: The open calls that wait for the user's approval, or are about to; their tools have not run.
        next_round: The round of the next call.
        has_open_text: Text was sent after the last start or end of a call.
        answer: The answer's text since the last start of an own call, which has no row yet.
        kept_answer: The part of `answer` that a `Rewind` does not remove.
        sources: The sources that were sent.
        signals: Cancellation and answers that clients have sent.
    """

    call_ids: frozenset[str] = frozenset()
    open_calls: Mapping[str, RunningCall] = field(default_factory=dict)
    unstarted: Mapping[str, str] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    unapproved: Collection[str] = ()
    next_round: int = 0
    has_open_text: bool = False
    answer: str = ""
    kept_answer: str = ""
    sources: Sequence[Source] = ()
    signals: RunSignals = NO_SIGNALS

    @property
    def has_waited(self) -> bool:
        """Whether calls have waited for their approval, and the run goes on with the user's answer now."""
        return self.signals.has_waited and bool(self.unapproved) and not self.signals.is_cancelled


@dataclass(frozen=True, slots=True)
class Reopened:
    """A run that can continue: its conversation with the finished rounds, and the state of its stored events.

    `repeated` are the ids of the open calls that run again. `added` are the events that `reopen` has stored.
    """

    conversation: Conversation
    left: LeftRun
    repeated: AbstractSet[str]
    added: Sequence[Rewind | ToolCallError]


async def read_questions(stored_runs: StoredRuns, run_id: str) -> dict[str, InputRequest]:
    """Return the questions of a run according to its stored events, by their ids, each as it was asked last."""
    events = await REQUESTS.run(partial(_decode, await _read_frames(stored_runs, run_id)))
    return {one.request_id: one for one in events if isinstance(one, InputRequest)}


async def _read_frames(stored_runs: StoredRuns, run_id: str) -> list[bytes]:
    frames: list[bytes] = []
    while found := await stored_runs.read(run_id, len(frames), READ_BYTES):
        frames += found
    return frames


def _decode(frames: Sequence[bytes]) -> list[Event | None]:
    return [decode(frame) for frame in Decoder().feed(b"".join(frames))]


async def read_left_run(stored_runs: StoredRuns, run_id: str) -> LeftRun:
    """Return the state of a run according to its stored events."""
    frames = await _read_frames(stored_runs, run_id)
    signals = (await stored_runs.signals([run_id])).get(run_id, NO_SIGNALS)
    # In a thread, because decoding the events of a long answer would block other requests.
    return await REQUESTS.run(partial(_read, frames, signals))


def _read(frames: Sequence[bytes], signals: RunSignals) -> LeftRun:
    calls: dict[str, RunningCall | EndedCall] = {}
    fingerprints: dict[str, str] = {}
    sources: list[Source] = []
    has_open_text = False
    answer: list[str] = []
    kept_count = 0
    events = _decode(frames)
    for event in events:
        match event:
            case InputRequest(tool_call_id=str() as call_id, request_id=request_id) if is_approval(request_id):
                fingerprints[call_id] = event.tool_fingerprint
            case Source():
                sources.append(event)
            case TextEvent():
                has_open_text = True
                if isinstance(event, Message):
                    answer.append(event.content)
            case CallEvent():
                follow_call(calls, event)
                is_own_start = isinstance(event, ToolCallStart) and not event.parent_call_id
                if is_own_start or isinstance(event, ToolCallExternal):
                    answer.clear()
                if not isinstance(event, ToolStatus | ToolRequest):
                    has_open_text = False
                    kept_count = len(answer)
            case Rewind():
                has_open_text = False
                del answer[kept_count:]
            case _:
                pass
    running = {call_id: call for call_id, call in calls.items() if isinstance(call, RunningCall)}
    return LeftRun(
        call_ids=frozenset(call_id for call_id, call in calls.items() if not call.start.parent_call_id),
        open_calls=running,
        unstarted=_find_unstarted(events),
        fingerprints=fingerprints,
        unapproved={
            call_id
            for call_id, call in running.items()
            if (call.start.asks_first or call_id in fingerprints) and not _has_reported(call)
        },
        next_round=max(((call.start.round_index or 0) + 1 for call in calls.values()), default=0),
        has_open_text=has_open_text,
        answer="".join(answer),
        kept_answer="".join(answer[:kept_count]),
        sources=sources,
        signals=signals,
    )


def _has_reported(call: RunningCall) -> bool:
    """Return whether an open call has a status that only a running tool reports."""
    return any(step.status not in STATUSES_BEFORE_RUNNING for step in call.steps)


def _find_unstarted(events: Iterable[Event | None]) -> Mapping[str, str]:
    """Return the tools of calls without a start that a `Rewind` would not remove, by call ids; see `LeftRun`."""
    announced: dict[str, str] = {}
    unstarted: dict[str, str] = {}
    for event in events:
        match event:
            case ToolCallArgsDelta():
                announced.setdefault(event.tool_call_id, event.tool_name)
            case ToolCallStart() | ToolCallComplete() | ToolCallError():
                announced.pop(event.tool_call_id, None)
                unstarted = dict(announced)
            case Rewind():
                announced = dict(unstarted)
            case _:
                pass
    return unstarted


async def reopen(
    stored_runs: StoredRuns,
    store: Store,
    stored: StoredRun,
    record: RunRecord,
    request: RunRequest,
    agent: AgentLike,
) -> Reopened | Error | None:
    """Prepare a run to be continued. Return its last event if it can only be ended, None if it had already ended.

    First the calls that do not run again get their ends, and the ends are stored. Then the history is loaded, which has
    the results of all calls that have ended. A server that is killed in between leaves a run that can be reopened.

    Raises `StorageError` and `RunLost`.
    """
    turn = await record.writer.restore()
    if record.writer.rows.ending:
        # The turn has ended, only the last event was not stored.
        _append(record, stored.last_seq, [_LAST_EVENT.validate_json(record.writer.rows.ending)])
        await record.store()
        return None
    left = await read_left_run(stored_runs, stored.run_id)
    if left.call_ids and (turn is None or not left.call_ids <= turn.call_ids):
        # The chat was deleted. Without its calls in the messages, the model would repeat them.
        return STOPPED_DURING_ANSWER
    if any(map(_is_external, record.writer.rows.open_calls)):
        # The client runs its functions after the end of the run, so the model would call the function once more.
        return STOPPED_DURING_ANSWER
    if left.signals.is_cancelled:
        # No agent writes the text again, so it stays.
        left = replace(left, has_open_text=False, kept_answer=left.answer)
    repeated = _find_repeatable(agent, left, [tool.name for tool in request.openwebui_tools])
    added = _end_unfinished(left, repeated)
    _append(record, stored.last_seq, added)
    await record.store()
    conversation = await open_conversation(store, request, stored.run_id, None)
    if conversation.history.is_missing:
        # Without its finished calls the agent would repeat them.
        raise StorageError("the history of the chat cannot be read")
    if turn:
        conversation = _add_turn(conversation, turn, left, repeated)
    return Reopened(conversation, left, repeated, added)


def _end_unfinished(left: LeftRun, repeated: Collection[str]) -> Sequence[Rewind | ToolCallError]:
    """Return the events that take back unfinished text, and end the calls that do not run again."""
    ended = {call_id: call.name for call_id, call in left.open_calls.items() if call_id not in repeated}
    unstarted = [
        ToolCallError(tool_call_id=call_id, tool_name=name, error=NOT_STARTED, code="interrupted")
        for call_id, name in left.unstarted.items()
    ]
    # The `Rewind` comes first, because clients keep the text before the end of a call.
    rewind = [Rewind()] if left.has_open_text else []
    return [*rewind, *(_mention_answer(end, left) for end in _make_ends(ended, left.unapproved)), *unstarted]


def _add_turn(conversation: Conversation, turn: StoredTurn, left: LeftRun, repeated: Collection[str]) -> Conversation:
    """Return the conversation with the stored rounds of the run's own turn."""
    calls = conversation.history.calls
    ended = turn.call_ids - frozenset(repeated)
    return replace(
        conversation,
        messages=[*conversation.messages, *turn.as_messages()],
        calls_made=[call.tool_name for call in calls if call.tool_call_id in ended],
        unfinished=tuple(
            ToolCall(
                call.tool_call_id,
                call.tool_name,
                call.arguments,
                rescued=left.open_calls[call.tool_call_id].is_from_text,
                asks_first=left.open_calls[call.tool_call_id].is_from_text,
                # Also if the settings have changed since, or the call was read from text.
                needs_approval=call.tool_call_id in left.unapproved,
                is_changed=left.open_calls[call.tool_call_id].is_changed,
                asked_fingerprint=left.fingerprints.get(call.tool_call_id),
                task_id=left.open_calls[call.tool_call_id].task_id,
            )
            for call in calls
            if call.tool_call_id in repeated
        ),
    )


async def end_run(
    record: RunRecord, stored: StoredRun, left: LeftRun, ending: Error
) -> Sequence[Error | ToolCallError]:
    """End a run that cannot continue, and its open calls. Return the new events. Raises `StorageError`, `RunLost`."""
    turn = await record.writer.restore()
    rows = record.writer.rows
    # Without rows the chat was deleted, and with an ending the text has its row.
    answer = left.answer if turn and not rows.ending else ""
    open_calls = {call.tool_call_id: call.tool_name for call in rows.open_calls if not _is_external(call)}
    open_calls |= {call_id: call.name for call_id, call in left.open_calls.items()}
    last: list[Error | ToolCallError] = [*_make_ends(open_calls, left.unapproved), ending]
    _append(record, stored.last_seq, last)
    # Only calls of the client's functions are open. The client was not asked to run them unless the turn had ended.
    for call in () if rows.ending else rows.open_calls:
        record.append(changes=rows.end_call(call.tool_call_id, format_error(NOT_STARTED), "interrupted", None))
    record.append(changes=rows.finish(answer, is_answered=False, ending=ending.model_dump_json()))
    await record.store()
    return last


def _make_ends(open_calls: Mapping[str, str], unapproved: Collection[str]) -> list[ToolCallError]:
    """Return the end events of open calls, which are names of tools by call ids.

    The tools of the calls in `unapproved` have not run.
    """
    return [
        ToolCallError(
            tool_call_id=call_id,
            tool_name=name,
            error=UNANSWERED_CALL if call_id in unapproved else INTERRUPTED_CALL,
            code="interrupted",
        )
        for call_id, name in open_calls.items()
    ]


def _is_external(call: HistoryCall) -> bool:
    """Return whether the call is of a function of the client."""
    return call.tool_call_id.startswith(EXTERNAL_ID_PREFIX)


def _mention_answer(end: ToolCallError, left: LeftRun) -> ToolCallError:
    """Return the end of a call that will not run again; it names the answer if its question has one."""
    given = left.signals.answers.get(APPROVAL_PREFIX + end.tool_call_id)
    if given is None or end.tool_call_id not in left.unapproved:
        return end
    if refused := explain_refusal(given.value, is_from_inspector=given.in_inspector):
        refusal = end.model_copy(update={"error": refused, "code": ToolDenied.code})
        return truncate(make_storable(refusal))[0]
    return end.model_copy(update={"error": CANNOT_RUN}) if may_allow(given.value) else end


def _append(record: RunRecord, last_seq: int, events: Sequence[Done | Error | Rewind | ToolCallError]) -> None:
    """Append events after `last_seq` to the record, with the row changes of the calls that they end."""
    for seq, event in enumerate(events, last_seq + 1):
        changes = []
        if isinstance(event, ToolCallError):
            changes = record.writer.rows.end_call(event.tool_call_id, format_error(event.error), event.code, None)
        record.append(StoredFrame(encode(seq, event), is_last=isinstance(event, Done | Error)), changes)


def _find_repeatable(agent: AgentLike, left: LeftRun, openwebui_tools: Collection[str]) -> AbstractSet[str]:
    """Return the ids of the open calls that run again.

    A call runs again if its tool only reads or is repeatable, if it follows a task at another service, if the user has
    not approved it yet, or if the client runs its tool: the client runs a request once, also if it is sent again. A
    call with a secret argument never runs again, because the value is not stored. Of a framework's calls, only those
    run that the user has not approved yet, because it is unknown what their tools change.
    """
    tools = {tool.name: tool for tool in agent.tools} if isinstance(agent, Agent) else {}

    def is_repeatable(call_id: str, call: RunningCall) -> bool:
        if MASK in to_json(call.start.tool_args).decode():
            return False
        if not isinstance(agent, Agent):
            can_wait = getattr(agent, "calls_can_wait", False) and not call.start.parent_call_id
            return can_wait and call_id in left.unapproved
        tool = tools.get(call.name)
        if tool is None:
            return call.name in openwebui_tools
        # A call that asks runs only after the approval is stored, and then it has reported. The settings of this server
        # do not count: the call began under those of another one, perhaps without approval.
        return tool.read_only or tool.repeatable or bool(call.task_id) or call_id in left.unapproved

    return frozenset(call_id for call_id, call in left.open_calls.items() if is_repeatable(call_id, call))
