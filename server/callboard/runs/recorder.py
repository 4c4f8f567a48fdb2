"""Converts the events of any agent to a valid event stream of the protocol, and to row changes.

Every event of an agent passes the recorder before it gets to the log. Calls are paired, numbered and given unique ids
(`call_tracker`), and stored before their tools run. Texts are joined (`event_sender`). Secrets are redacted in all
events, and events are cut to the size of a frame (`outgoing_events`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog

from callboard._formats import answer_key
from callboard._history import HistoryCall, RowChange, TurnRows
from callboard.agents.notices import NOTHING_SAID
from callboard.calls.approval import AGREED, ALLOWED_ALWAYS, ALWAYS, is_approval
from callboard.calls.call import format_error
from callboard.calls.throttle import Throttle
from callboard.errors import AgentError, RunLost, ToolDenied, ToolNotAnswered, ToolNotAsked
from callboard.models import ChatDict
from callboard.redaction import MASK, Redaction, without_paths
from callboard.runs.call_tracker import CallTracker, OpenCall
from callboard.runs.event_sender import EarlierSources, EventSender
from callboard.runs.files import RunFiles
from callboard.runs.inputs import Inputs
from callboard.runs.log import EventLog
from callboard.runs.outgoing_events import make_storable, redact_arguments, redact_event, truncate
from callboard_protocol import (
    CallEvent,
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Rewind,
    RunStart,
    Source,
    Status,
    TextEvent,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallStart,
    ToolRequest,
    ToolStatus,
    UnreadMessage,
    UserMessage,
)
from callboard_protocol.endings import find_ending

NOT_REMEMBERED = (
    "The server cannot use its database at the moment: earlier tool calls may be missing, and this answer may not be "
    "remembered."
)

DECLINED = frozenset({ToolDenied.code, ToolNotAsked.code, ToolNotAnswered.code})
"""The error codes of calls that have not run because of a decision, or because there was none."""

_audit_log = structlog.get_logger("audit")
"""A line for each call and each decision; the name is also a field, because not every log has names of loggers."""

MAX_DURATION_MS = 2**31 - 1
"""The largest value of the database column: 24 days."""

STILL_RUNNING = " Its tool could not be stopped: it may still be running, and may take effect."


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends: its terminal event, and the error code and message for calls that are still open."""

    event: Done | Error
    call_code: str = "interrupted"
    call_error: str = "The run ended before this call did."


class Recorder:
    """Records one run: `record` is called with each event of the agent, `finish` at its end.

    Args:
        calls: Tracks the run's calls; the agent's events change it only through the recorder.
        inputs: The run's questions.
        files: The run's files that are too large for a frame.
        rows: Makes the row changes of the run's turn; None if the run is not stored.
        audit_fields: The fields of all lines that the run writes to the audit log.
        link: Returns the URL of a call's whole result by the call's id; None if links are off or the run is not stored.
    """

    def __init__(
        self,
        log: EventLog,
        calls: CallTracker,
        inputs: Inputs,
        files: RunFiles,
        rows: TurnRows | None = None,
        redaction: Redaction | None = None,
        audit_fields: Mapping[str, str | None] = MappingProxyType({}),
        link: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.terminal: Done | Error | None = None
        """The terminal event that the agent has sent, if any."""
        self.left_running: set[str] = set()
        """The calls whose tools could not be stopped, by the agent's ids."""
        self.provider_details: dict[str, ChatDict] = {}
        """The providers' data about calls and answers of the chat, as in `ProviderDetails`."""
        self.replaced: dict[str, str] = {}
        """What a framework's filter has put in the place of texts, as in `TurnContext`."""
        self.earlier_sources = EarlierSources()
        """The sources of earlier turns; filled before the agent starts."""
        self._log = log
        log.on_unremembered = self.report_unremembered
        self._rows = rows
        self._redaction = redaction or Redaction()
        self._inputs = inputs
        # Not a method, which would make a reference cycle with the event sender.
        self._send = partial(_send, log, inputs, files, link)
        self._text = EventSender(self._redaction, self.earlier_sources, self._send, log.memory if rows else None)
        self.calls = calls
        """The calls of the run."""
        self._client_calls: list[str] = []
        self._audit_log = _audit_log.bind(logger="audit", **audit_fields)
        self._asked_about: dict[str, str] = {}
        self._recording = asyncio.Lock()
        self._throttles: dict[str, Throttle[ToolStatus]] = {}
        self._is_reported_unremembered = False
        self._unlogged: list[Callable[[], None]] = []
        """The functions that write the log lines of starts that are not stored yet."""
        self._is_closed = False

    def restore(self, open_calls: Mapping[str, str], sources: Sequence[Source], answer: str) -> None:
        """Add the state of a run that another server began.

        `open_calls` are names of tools by call ids; the agent may start each of these calls once more. `sources` were
        sent, and so was `answer`, which has no row yet.
        """
        self.calls.restore(open_calls)
        self._text.restore(answer)
        for source in sources:
            self.earlier_sources.exclude_sent(source)

    def report_unremembered(self) -> None:
        """Send a status, once, that the answer may not be remembered."""
        if not self._is_reported_unremembered:
            self._is_reported_unremembered = True
            self._text.send_after_text(Status(content=NOT_REMEMBERED, done=True))

    async def record(self, event: Event) -> None:
        """Record one event of the agent. A tool may run only when its start is stored, see `wait_until_stored`.

        Raises:
            AgentError: The agent yielded an object that is not an event.
            RunLost: The run is left or finished, so the agent must not run more tools.
        """
        async with self._recording:
            if self._is_closed:
                raise RunLost("this run takes no more events")
            if self.terminal is None:
                await self._accept(event)

    async def record_whole(self, event: Event) -> None:
        """Record one event completely, even if the caller is cancelled in the meantime.

        A partial write would leave different events in the database and in the log. Raises the errors of `record`.
        """
        recording = asyncio.ensure_future(self.record(event))
        recording.add_done_callback(_take_error)
        await asyncio.shield(recording)

    async def finish(self, ending: Ending, unread: Sequence[UnreadMessage] = ()) -> None:
        """End the open calls, and send the last text, `unread` and the terminal event. Never raises `StorageError`."""
        async with self._recording:
            self._is_closed = True
            self._text.flush()
            for call in self.calls:
                error = ending.call_error + (STILL_RUNNING if call.agent_call_id in self.left_running else "")
                self._end_call(call, ToolCallError(tool_call_id="", error=error, code=ending.call_code))
            for message in unread:
                self._send(await redact_event(message, self._redaction))
            last = ending.event
            if isinstance(last, Error):
                last = last.model_copy(update={"message": without_paths(last.message)})
            last = await redact_event(last, self._redaction)
            self._send(last, self._end_turn(ending, last))
            await self._log.wait_until_stored()
            if not self._log.is_left:
                self._log_starts()
            self._close()

    def _end_turn(self, ending: Ending, last: Done | Error) -> list[RowChange]:
        """Return the last changes of the turn; `last` is the run's last event."""
        answer = self._text.take_answer()
        if self._rows is None:
            return []
        changes: list[RowChange] = []
        if not (isinstance(last, Done) and last.finish_reason == "tool_calls"):
            for call_id in self._client_calls:
                # The run failed before the client was asked to run this call.
                changes += self._rows.end_call(call_id, format_error(ending.call_error), ending.call_code, None)
        return changes + self._rows.finish(
            answer,
            is_answered=_is_answer(answer, last),
            details=self._redaction.value(self.provider_details.get(answer_key(answer))),
            ending=last.model_dump_json(),
            replaced={key: self._redaction(text) for key, text in self.replaced.items()},
        )

    async def stop_accepting(self) -> None:
        """Accept no more events, and send all delayed ones. Open calls stay open until `finish` or `leave`."""
        async with self._recording:
            self._is_closed = True
            for throttle in self._throttles.values():
                throttle.flush()
            self._throttles.clear()
            self._text.flush()

    async def leave(self) -> None:
        """Close the log without a terminal event: another server continues the run from the database."""
        async with self._recording:
            self._is_closed = True
            self._close()

    def end_abruptly(self, ending: Ending) -> None:
        """Send the terminal event without row changes, after an unexpected error in `finish`."""
        self._is_closed = True
        if not self._log.closed:
            for call in self.calls:
                self.calls.end(call)
                end = ToolCallError(
                    tool_call_id=call.tool_call_id,
                    tool_name=call.tool_name,
                    error=ending.call_error,
                    code=ending.call_code,
                    duration_ms=call.clock.elapsed_ms,
                )
                self._log.append(end)
            self._log.append(ending.event)
        self._close()

    def _close(self) -> None:
        # Reference cycles between recorder and log would keep the whole run in memory.
        self._text.flush()
        self._log.on_unremembered = lambda: None
        self._throttles.clear()
        self._log.close()

    async def _accept(self, event: Event) -> None:
        match event:
            case RunStart():
                pass  # the server has sent its own
            case Done() | Error():
                self.terminal = make_storable(event)
            case TextEvent():
                self._write_text(event)
            case Rewind():
                self._text.rewind()
            case CallEvent():
                await self._accept_call_event(make_storable(event))
            case UserMessage():
                await self._accept_user_message(make_storable(event))
            case Event():
                event = make_storable(event)
                changes: Sequence[RowChange] = ()
                if isinstance(event, InputRequest) and event.tool_call_id:
                    self._note_question(event.tool_call_id, event.request_id)
                    # An agent may learn after the start of a call what another server must know to go on with it.
                    details = self._redaction.value(self.provider_details.get(event.tool_call_id, {}))
                    changes = self._rows.change_details(event.tool_call_id, details) if self._rows else ()
                self.earlier_sources.exclude_sent(event)
                self._text.send_after_text(await redact_event(event, self._redaction), changes)
            case _:
                raise AgentError(
                    f"the agent yielded {type(event).__name__}: run() must yield events of callboard_protocol"
                )

    def _write_text(self, event: TextEvent) -> None:
        match event:
            case Message(content=content) if content:
                self.calls.end_round()
            case ToolCallArgsDelta(tool_call_id=agent_call_id):
                call_id = self.calls.announce(agent_call_id)
                if call_id is None:
                    return  # arguments after the start of the call are not shown
                event = event.model_copy(update={"tool_call_id": call_id})
            case _:
                pass
        self._text.write(event)

    async def _accept_user_message(self, event: UserMessage) -> None:
        self._inputs.note_read(event.message_id)
        self._text.flush()
        # The next call belongs to another answer of the model.
        self.calls.end_round()
        said = await redact_event(event, self._redaction)
        text = self._text.take_answer()
        details = self._redaction.value(self.provider_details.get(answer_key(text)))
        self._text.keep_text()
        self._text.send_after_text(said, self._rows.add_user_message(text, said.content, details) if self._rows else [])

    async def _accept_call_event(self, event: CallEvent) -> None:
        if isinstance(event, ToolCallStart):
            # `_start_call` redacts the arguments, because they are stored and shown in different forms.
            self._start_call(event)
            return
        event = await redact_event(event, self._redaction)
        call = self.calls.find(event.tool_call_id)
        match event:
            case ToolCallExternal():
                await self._start_client_call(event)
            case ToolCallComplete() | ToolCallError():
                if call is None and not self.calls.has_ended(event.tool_call_id):
                    start = ToolCallStart(tool_call_id=event.tool_call_id, tool_name=event.tool_name or "unknown")
                    call = self._start_call(start)
                # Some frameworks report an error twice: only the first event ends the call.
                if call is not None:
                    self._end_call(call, event)
            case ToolStatus() if call is not None:
                await self._record_status(call, event)
            case _ if call is not None:
                self._text.send_after_text(event.model_copy(update={"tool_call_id": call.tool_call_id}))
            case _:
                pass  # the call is not open

    def _start_call(self, event: ToolCallStart) -> OpenCall:
        self._text.flush_text()
        if restored := self.calls.take_restored(event.tool_call_id):
            return restored
        raw, shown = redact_arguments(event.tool_args, self._redaction)
        call = self.calls.start(event.tool_call_id, event.tool_name, event.parent_call_id)
        if MASK in raw:
            self.calls.mark_masked(call.tool_call_id)
        self._text.drop_arguments(call.tool_call_id)
        started = self._make_call(call.tool_call_id, call.tool_name, raw, call.parent_call_id)
        # The text before a call of a sub-agent stays a part of this agent's answer.
        text_before = "" if call.parent_call_id else self._text.take_answer()
        self._text.keep_text()
        shown_start = ToolCallStart(
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            tool_args=shown,
            round_index=started.round_index,
            sequence_index=started.sequence_index,
            stoppable=event.stoppable,
            label=self._redaction(event.label),
            from_text=event.from_text,
            asks_first=event.asks_first,
            show=event.show,
            parent_call_id=call.parent_call_id,
        )
        changes = self._rows.start_call(started, text_before) if self._rows else []
        self._text.send_after_text(shown_start, changes)
        self._unlogged.append(partial(self._log_for_audit, "call", call.tool_call_id, call.tool_name, arguments=raw))
        return call

    async def _start_client_call(self, event: ToolCallExternal) -> None:
        """Send a call that the client runs; it stays open in the store until a later request brings the result."""
        self._text.flush()
        call_id = self.calls.ids.claim_for_client(event.tool_call_id)
        self._client_calls.append(call_id)
        text_before = self._text.take_answer()
        started = self._make_call(call_id, event.tool_name, event.arguments)
        self._text.send_after_text(
            event.model_copy(update={"tool_call_id": call_id, "arguments": event.arguments or "{}"}),
            self._rows.start_call(started, text_before) if self._rows else [],
        )
        await self.wait_until_stored()
        self._log_for_audit("client_call", call_id, event.tool_name, arguments=event.arguments)

    def _note_question(self, tool_call_id: str, request_id: str) -> None:
        """Remember the newest question about the approval of a call: after changes that do not fit there is another."""
        if is_approval(request_id) or tool_call_id in self._asked_about:
            self._asked_about[tool_call_id] = request_id

    async def _record_status(self, call: OpenCall, event: ToolStatus) -> None:
        throttle = self._throttles.get(call.tool_call_id)
        if throttle is None:
            throttle = self._throttles[call.tool_call_id] = Throttle(self._send_status)
        step = event.model_copy(update={"tool_call_id": call.tool_call_id})
        if step.data.arguments is not None:
            throttle.flush()
            asked = self._asked_about.get(event.tool_call_id)
            key = self._inputs.find_answer_key(asked) if asked else None
            self._record_changes(call, step, step.data.arguments, key)
            return
        if step.data.message not in AGREED and not step.data.task_id:
            throttle.put(step)
            return
        throttle.flush()
        # A tool may report the same text without having asked.
        request_id = self._asked_about.pop(event.tool_call_id, None)
        self._send_status(step)
        await self.wait_until_stored()
        if request_id:
            decision = ALWAYS if step.data.message == ALLOWED_ALWAYS else "allowed"
            self._log_decision(call, decision, self._inputs.find_answer_key(request_id))

    def _record_changes(
        self, call: OpenCall, step: ToolStatus, arguments: dict[str, Any] | str, key: str | None
    ) -> None:
        """Store the arguments that the user or a framework's agent has changed, as those of the call."""
        raw, shown = redact_arguments(arguments, self._redaction)
        if MASK in raw:
            self.calls.mark_masked(call.tool_call_id)
        step = step.model_copy(update={"data": step.data.model_copy(update={"arguments": shown})})
        changes = self._rows.change_arguments(call.tool_call_id, raw) if self._rows else []
        self._send_status(step, changes)
        self._log_decision(call, "changed", key, arguments=raw)

    def _send_status(self, step: ToolStatus, changes: Sequence[RowChange] = ()) -> None:
        data = step.data
        if self._rows:
            changes = [*changes, *self._rows.add_status(step.tool_call_id, data.status, data.message, data.progress)]
        self._text.send_after_text(step, changes)

    def _end_call(self, call: OpenCall, event: ToolCallComplete | ToolCallError) -> None:
        if throttle := self._throttles.pop(call.tool_call_id, None):
            throttle.flush()
        self._text.flush_text()
        duration_ms = None
        if not isinstance(event, ToolCallError) or find_ending(event.code).has_run:
            duration_ms = call.clock.elapsed_ms if event.duration_ms is None else event.duration_ms
            duration_ms = min(duration_ms, MAX_DURATION_MS)
        measured: dict[str, Any] = {
            "tool_call_id": call.tool_call_id,
            "tool_name": call.tool_name,
            "duration_ms": duration_ms,
        }
        if isinstance(event, ToolCallError):
            output = format_error(event.error)
            code = event.code
        else:
            output = event.result
            code = None
            measured["result_chars"] = len(output)
        self.calls.end(call)
        self._text.keep_text()
        self._text.send_after_text(
            event.model_copy(update=measured),
            self._rows.end_call(call.tool_call_id, output, code, duration_ms) if self._rows else [],
        )
        asked = self._asked_about.pop(event.tool_call_id, None)
        if code in DECLINED:
            self._log_decision(call, code, self._inputs.find_answer_key(asked) if asked else None)

    async def wait_until_stored(self) -> None:
        """Wait until all sent events are stored, or the run continues without the database.

        Raises `RunLost`. If the database fails, another server may own the run: its tools must not run on both.
        """
        await self._log.wait_until_stored()
        if self._log.is_left:
            raise RunLost("another server has taken over this run")
        self._log_starts()

    def _log_starts(self) -> None:
        for log in self._unlogged:
            log()
        self._unlogged.clear()

    def _log_decision(self, call: OpenCall, decision: str, by: str | None, **values: str) -> None:
        """Log the decision about a call; `by` is the name of the key that sent the answer, None if there was none."""
        self._log_for_audit("decision", call.tool_call_id, call.tool_name, decision=decision, decided_by=by, **values)

    def _log_for_audit(self, event: str, tool_call_id: str, tool_name: str, **values: str | None) -> None:
        self._audit_log.info(event, tool_call_id=tool_call_id, tool=tool_name, **values)

    def _make_call(self, call_id: str, tool_name: str, arguments: str, parent_call_id: str = "") -> HistoryCall:
        """Return a call that is about to run, with its round, for the store."""
        round_index, sequence_index = self.calls.next_place()
        details = self._redaction.value(self.provider_details.get(call_id, {}))
        return HistoryCall(
            call_id, tool_name, arguments, round_index, sequence_index, details, parent_call_id=parent_call_id or None
        )


def _take_error(recording: asyncio.Future[None]) -> None:
    """Mark the error of a cancelled caller's task as retrieved, so that asyncio does not log it."""
    if not recording.cancelled():
        recording.exception()


def _send(
    log: EventLog,
    inputs: Inputs,
    files: RunFiles,
    link: Callable[[str], str | None],
    event: Event,
    changes: Sequence[RowChange] = (),
) -> None:
    """Append an event with its links; a question for which `Inputs.open` returns None is not sent."""
    match event:
        case InputRequest() | ToolRequest():
            opened = inputs.open(event)
            if opened is None:
                return
            event = opened
        case ToolCallComplete():
            linked = tuple(files.link(file) for file in event.files)
            event = event.model_copy(update={"files": linked, "result_url": link(event.tool_call_id)})
        case _:
            pass
    first, *rest = truncate(event)
    log.append(first, changes)
    for fitting in rest:
        log.append(fitting)


def _is_answer(text: str, ending: Done | Error) -> bool:
    """Return whether the turn ended normally, with an answer that the model wrote."""
    answer = text.strip()
    is_said = bool(answer) and not answer.startswith(NOTHING_SAID)
    return isinstance(ending, Done) and ending.finish_reason == "stop" and is_said
