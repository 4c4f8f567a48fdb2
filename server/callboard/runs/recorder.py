"""Keeps the protocol's promises, whatever an agent yields.

Every event of an agent passes through here on its way to the log: ids are made unique,
calls paired and numbered, texts joined, results cut for the wire and written whole to the
journal. An agent may be sloppy; what listeners see is not.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic_core import to_json

from callboard.errors import AgentError, StorageError
from callboard.history import Journal, StartedCall
from callboard.runs.call_ids import CallIds
from callboard.runs.joining import TextJoiner
from callboard.runs.log import EventLog
from callboard.runs.wire import frames_of
from callboard.text import storable
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Reasoning,
    RunStart,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    Usage,
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has started: `source_id` is what the agent calls it, `tool_call_id` what everybody else does."""

    tool_call_id: str
    source_id: str
    tool_name: str
    started: float


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends: its terminal event, and the code and words for calls that are still open."""

    event: Done | Error
    call_code: str = "interrupted"
    call_error: str = "The run ended before this call did."


class Recorder:
    """Records one run. `record` takes the agent's events one at a time, `finish` closes what is open."""

    def __init__(
        self,
        log: EventLog,
        journal: Journal,
        ids: CallIds,
        redact: Callable[[str], str] = lambda text: text,
        prepare: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        self.terminal: Done | Error | None = None
        """What the agent itself said at its end, if it did."""
        self._log = log
        self._journal = journal
        self._ids = ids
        self._redact = redact
        self._prepare = prepare
        self._writing = asyncio.Lock()
        self._joiner = TextJoiner(self._append)
        self._text: list[str] = []
        self._claimed: set[str] = set()
        self._announced: dict[str, str] = {}
        self._open: dict[str, OpenCall] = {}
        self._ended: set[str] = set()
        self._round_index = -1
        self._sequence_index = 0
        self._round_is_open = False
        self._finished = False

    def claim(self, candidate: str) -> str:
        """An id for a call that the agent is about to start; see `RunContext.claim_tool_call_id`."""
        call_id = self._ids.claim(candidate)
        self._claimed.add(call_id)
        return call_id

    async def start(self, event: RunStart, before_turn: Callable[[], Awaitable[None]] | None = None) -> None:
        """The first event, sent at once; then, once `before_turn` has returned, the turn is opened in the journal."""
        self._log.append(event)
        if before_turn:
            await before_turn()
        async with self._writing:
            await self._journal.begin()

    async def record(self, event: Event) -> None:
        """One event of the agent. Returns when it is written: a tool must not run before its start is.

        Raises `AgentError` for what is no event, and `StorageError`.
        """
        async with self._writing:
            if self.terminal is None and not self._finished:
                await self._accept(event)

    async def finish(self, ending: Ending) -> None:
        """Close the open calls, write the last text, send the terminal event. Never raises `StorageError`."""
        async with self._writing:
            self._finished = True
            self._joiner.flush()
            try:
                for call in list(self._open.values()):
                    failure = ToolCallError(tool_call_id="", error=ending.call_error, code=ending.call_code)
                    await self._end(call, failure)
                await self._journal.finish("".join(self._text))
            except StorageError as error:
                _log.exception("turn_not_written")
                ending = Ending(Error(message=str(error), code=error.code))
                self._close_unwritten(ending)
            self._append(ending.event)
            # Else the two would hold each other, and with them all that the run was about.
            self._joiner.close()
            self._log.close()

    async def _accept(self, event: Event) -> None:
        match event:
            case RunStart():
                pass  # the run's own has been sent
            case Message() | Reasoning():
                self._say(event)
            case ToolCallArgsDelta():
                self._announce(event)
            case ToolCallStart():
                await self._start(event)
            case ToolStatus():
                await self._progress(event)
            case ToolCallComplete() | ToolCallError():
                await self._end_of(event)
            case Status() | Source() | InputRequest() | Usage():
                self._joiner.flush()
                self._append(event)
            case Done() | Error():
                self.terminal = event
            case _:
                raise AgentError(
                    f"the agent yielded {type(event).__name__}: run() must yield events of callboard_protocol"
                )

    def _say(self, event: Message | Reasoning) -> None:
        content = storable(event.content)
        if isinstance(event, Message) and content:
            self._text.append(content)
            self._round_is_open = False
        self._joiner.add(event.model_copy(update={"content": content}))

    def _announce(self, event: ToolCallArgsDelta) -> None:
        source_id = event.tool_call_id
        if self._find(source_id) or source_id in self._ended:
            return  # arguments are written before the start, or they are not shown
        if source_id not in self._claimed:
            source_id = self._announced.get(source_id) or self._announced.setdefault(
                source_id, self._ids.claim(source_id)
            )
        self._joiner.add(event.model_copy(update={"tool_call_id": source_id, "delta": storable(event.delta)}))

    async def _start(self, event: ToolCallStart) -> None:
        self._joiner.flush()
        call = OpenCall(
            self._id_of(event.tool_call_id), event.tool_call_id, storable(event.tool_name), time.monotonic()
        )
        if not self._round_is_open:
            self._round_is_open = True
            self._round_index += 1
            self._sequence_index = -1
        self._sequence_index += 1
        raw, shown = _arguments(event.tool_args)
        await self._journal.call_started(
            StartedCall(call.tool_call_id, call.tool_name, raw, self._round_index, self._sequence_index),
            "".join(self._text),
        )
        self._text.clear()
        self._open[call.tool_call_id] = call
        self._append(
            ToolCallStart(
                tool_call_id=call.tool_call_id,
                tool_name=call.tool_name,
                tool_args=shown,
                round_index=self._round_index,
                sequence_index=self._sequence_index,
            )
        )

    def _id_of(self, source_id: str) -> str:
        if source_id in self._claimed:
            self._claimed.discard(source_id)
            return source_id
        return self._announced.pop(source_id, None) or self._ids.claim(source_id)

    def _find(self, source_id: str) -> OpenCall | None:
        return next((call for call in self._open.values() if call.source_id == source_id), None)

    async def _progress(self, event: ToolStatus) -> None:
        call = self._find(event.tool_call_id)
        if call is None:
            return
        self._joiner.flush()
        data = event.data.model_copy(
            update={"status": storable(event.data.status), "message": storable(event.data.message)}
        )
        await self._journal.call_progressed(call.tool_call_id, data.status, data.message, data.progress)
        self._append(ToolStatus(tool_call_id=call.tool_call_id, data=data))

    async def _end_of(self, event: ToolCallComplete | ToolCallError) -> None:
        call = self._find(event.tool_call_id)
        if call is None:
            if event.tool_call_id in self._ended:
                return  # some frameworks report a failure twice
            await self._start(ToolCallStart(tool_call_id=event.tool_call_id, tool_name=event.tool_name or "unknown"))
            call = next(reversed(self._open.values()))
        await self._end(call, event)

    async def _end(self, call: OpenCall, event: ToolCallComplete | ToolCallError) -> None:
        self._joiner.flush()
        self._round_is_open = False
        duration_ms = _milliseconds(call) if event.duration_ms is None else event.duration_ms
        common = {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name, "duration_ms": duration_ms}
        if isinstance(event, ToolCallError):
            error = self._redact(storable(event.error))
            await self._journal.call_ended(call.tool_call_id, _as_output(error), event.code, duration_ms)
            ended: Event = event.model_copy(update={**common, "error": error})
        else:
            result = storable(event.result)
            await self._journal.call_ended(call.tool_call_id, result, None, duration_ms)
            ended = event.model_copy(update={**common, "result": result})
        del self._open[call.tool_call_id]
        self._ended.add(call.source_id)
        self._append(ended)

    def _close_unwritten(self, ending: Ending) -> None:
        """The database is out of reach: listeners are still owed an end for every call."""
        for call in self._open.values():
            self._append(
                ToolCallError(
                    tool_call_id=call.tool_call_id,
                    tool_name=call.tool_name,
                    error=ending.call_error,
                    code=ending.call_code,
                    duration_ms=_milliseconds(call),
                )
            )
        self._open.clear()

    def _append(self, event: Event) -> None:
        for frame in frames_of(self._prepare(event)):
            self._log.append(frame)


def _arguments(arguments: dict[str, Any] | str) -> tuple[str, dict[str, Any] | str]:
    """The arguments as they are stored, and as they are shown: an object where they are one."""
    if isinstance(arguments, dict):
        # A framework's objects may hold what JSON does not know: dates, NaN, its own classes.
        raw = to_json(arguments, inf_nan_mode="null", serialize_unknown=True).decode()
    else:
        raw = storable(arguments)
    try:
        shown = json.loads(raw, parse_constant=_no_constant) if raw.strip() else {}
    except (ValueError, RecursionError):
        return raw, raw
    return raw, shown if isinstance(shown, dict) else raw


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _as_output(error: str) -> str:
    """What the model reads where a result would be."""
    return error if error.startswith("Error:") else f"Error: {error}"


def _milliseconds(call: OpenCall) -> int:
    return round((time.monotonic() - call.started) * 1000)
