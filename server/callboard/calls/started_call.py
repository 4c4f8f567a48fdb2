"""Calls that have started: running, then ended. Made by the runner of the calls, or from the events of a run."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from callboard.calls.approval import APPROVED, ASKING, PENDING
from callboard.calls.context import CallClock, StatusReport
from callboard.calls.result import ToolResult
from callboard.errors import ToolError
from callboard.text import cut_note
from callboard_protocol import (
    FROM_TEXT_STATUS,
    Event,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    find_ending,
    format_ending,
)

MAX_STEPS = 200
"""The steps that are kept of one call: the first ones, and the newest."""


@dataclass
class StartedCall:
    """A call that has started. Times are in seconds since the epoch; `steps` are its reports, at most `MAX_STEPS`.

    `is_changed`: the user has changed the arguments.
    """

    start: ToolCallStart
    started_at: float = field(default_factory=time.time)
    steps: list[StatusReport] = field(default_factory=list)
    is_changed: bool = False

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.start.tool_call_id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.start.tool_name

    @property
    def place(self) -> tuple[int, int]:
        """The round of the call in its turn, and the call's place in that round, both from 0."""
        return self.start.round_index, self.start.sequence_index

    @cached_property
    def arguments_text(self) -> str:
        """The arguments as JSON text, or the model's own text if that is no JSON object; cached for pages."""
        arguments = self.start.tool_args
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

    @property
    def is_from_text(self) -> bool:
        """Whether the call was read from the model's text, which was not asked to contain calls."""
        return any(step.status == FROM_TEXT_STATUS for step in self.steps)

    @property
    def progress(self) -> float | None:
        """The last percentage that the call reported, None if it reported none."""
        return next((step.progress for step in reversed(self.steps) if step.progress is not None), None)

    @property
    def last_message(self) -> str:
        """The message of the last step."""
        return self.steps[-1].message if self.steps else ""


@dataclass
class RunningCall(StartedCall):
    """A call that has started and not ended.

    For the runner: `inside` are the ids of the calls whose tools this call is part of; `is_approved`: its user has
    agreed; `clock` measures its duration.
    """

    inside: tuple[str, ...] = ()
    is_approved: bool = False
    clock: CallClock = field(default_factory=CallClock, repr=False)

    ended_at: ClassVar[None] = None
    duration_ms: ClassVar[None] = None
    error_code: ClassVar[None] = None
    is_failed: ClassVar[bool] = False
    has_run: ClassVar[bool] = True
    result_text: ClassVar[None] = None
    display_text: ClassVar[str] = ""

    @property
    def status(self) -> str:
        """`waiting` while its user is asked, otherwise `running`."""
        last = self.steps[-1] if self.steps else None
        is_waiting = last is not None and last.status in (PENDING, ASKING) and last.message != APPROVED
        return "waiting" if is_waiting else "running"

    def take_step(self, data: ToolStatusData) -> None:
        """Add a step of the call, and take the arguments that the user has changed."""
        self.steps.append(StatusReport(data.status, data.message, data.progress))
        if data.arguments is not None:
            self.is_changed = True
            self.start = self.start.model_copy(update={"tool_args": data.arguments})
            self.__dict__.pop("arguments_text", None)

    @property
    def elapsed_ms(self) -> int:
        """How long the call has run, without the time in which its user was asked."""
        return round(self.clock.seconds * 1000)

    def end(self, end: ToolCallComplete | ToolCallError, outcome: ToolResult | ToolError | None = None) -> "EndedCall":
        """Return the call as it has ended now."""
        began = (self.start, self.started_at, self.steps, self.is_changed)
        return EndedCall(*began, end=end, ended_at=time.time(), outcome=outcome)


@dataclass(kw_only=True)
class EndedCall(StartedCall):
    """A call that has ended. `outcome` is what its tool gave, None if only the events of the run are known."""

    end: ToolCallComplete | ToolCallError
    ended_at: float
    outcome: ToolResult | ToolError | None = None

    @property
    def error_code(self) -> str | None:
        """The code of the error, None if there is a result."""
        return self.end.code if isinstance(self.end, ToolCallError) else None

    @property
    def duration_ms(self) -> int | None:
        """How long the tool ran, None if it did not run."""
        return self.end.duration_ms

    @property
    def is_failed(self) -> bool:
        """Whether the call counts as an error of its tool; a declined call does not."""
        return self.error_code is not None and find_ending(self.error_code).is_failure

    @property
    def has_run(self) -> bool:
        """Whether the tool was started."""
        return self.error_code is None or find_ending(self.error_code).has_run

    @property
    def status(self) -> str:
        """The name of its state in stores and queries, such as `complete`."""
        return "complete" if self.error_code is None else find_ending(self.error_code).state

    @property
    def result_text(self) -> str:
        """What the model reads: the result, with a note if it was cut here, or the error."""
        if isinstance(self.end, ToolCallError):
            return format_error(self.end.error)
        return cut_note(self.end.result, self.end.result_chars if self.end.truncated else 0)

    @property
    def display_text(self) -> str:
        """What a person reads: the result, or why there is none."""
        return self.result_text if self.error_code is None else format_ending(self.error_code, self.result_text)

    @property
    def files(self) -> tuple[Mapping[str, Any], ...]:
        """The files that the call gave, in Open WebUI's form."""
        return self.end.files if isinstance(self.end, ToolCallComplete) else ()

    @property
    def embeds(self) -> tuple[str, ...]:
        """The HTML pages and URLs that the call gave."""
        return self.end.embeds if isinstance(self.end, ToolCallComplete) else ()


def format_error(error: str) -> str:
    """Return what the model reads in place of a result."""
    return error if error.startswith("Error:") else f"Error: {error}"


def follow_call(calls: dict[str, RunningCall | EndedCall], event: Event) -> RunningCall | EndedCall | None:
    """Update a run's calls, by their ids, with one of its events; return the call that has changed.

    Returns None for an event that changes no call.
    """
    match event:
        case ToolCallStart():
            calls[event.tool_call_id] = RunningCall(event)
            return calls[event.tool_call_id]
        case ToolStatus(tool_call_id=call_id, data=data):
            call = calls.get(call_id)
            if not isinstance(call, RunningCall):
                return None
            if len(call.steps) == MAX_STEPS:
                # The newest report says what the call does now.
                call.steps.pop()
            call.take_step(data)
            return call
        case ToolCallComplete() | ToolCallError():
            call = calls.get(event.tool_call_id)
            if not isinstance(call, RunningCall):
                return None
            calls[event.tool_call_id] = call.end(event)
            return calls[event.tool_call_id]
        case _:
            return None
