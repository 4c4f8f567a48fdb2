"""Runs, calls and requests as pages show them, made of what the watch has seen or of what the store keeps."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from callboard._history.records import StoredStatus
from callboard._inspect.watch import SeenCall, SeenRun, SentRequest
from callboard.calls.approval import APPROVED, PENDING
from callboard.models import TokenUsage
from callboard.storage import CallState, CallSummary, TurnSummary, name_state
from callboard_protocol import Done, Error, InputRequest, find_ending, format_ending

CallStatus = CallState | Literal["waiting"]
RunState = Literal["running", "waiting", "complete", "error", "stopped", "ended"]

FAILURES_LISTED = 3
"""The calls that failed that stand in a list of runs, of each the first."""


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call in a list; its arguments and its result may be cut. Times are seconds since the epoch."""

    call_id: str
    name: str
    arguments: str
    result: str | None
    status: CallStatus
    error_code: str | None
    started_at: float
    ended_at: float | None
    duration_ms: int | None
    round_index: int
    sequence_index: int
    steps: tuple[StoredStatus, ...]

    @property
    def is_failed(self) -> bool:
        """Whether it counts as an error of its tool."""
        return self.error_code is not None and find_ending(self.error_code).is_failure

    @property
    def outcome(self) -> str:
        """What a person reads of its end: its result, or why it has none."""
        result = self.result or ""
        return result if self.error_code is None else format_ending(self.error_code, result)

    @property
    def has_run(self) -> bool:
        """Whether its tool was started, so that it has a duration."""
        return self.error_code is None or find_ending(self.error_code).has_run

    @property
    def progress(self) -> float | None:
        """How far it is, in percent, where it said so."""
        return next((step.progress for step in reversed(self.steps) if step.progress is not None), None)

    @property
    def last_words(self) -> str:
        """The last thing that it said of itself."""
        return self.steps[-1].message if self.steps else ""

    def waits(self, now: float) -> list[tuple[float, float]]:
        """Return when it waited for its user, from and until; what has no end yet lasts until `now`."""
        found: list[tuple[float, float]] = []
        began: float | None = None
        for step in self.steps:
            if step.status == PENDING:
                began = step.at
            elif began is not None:
                found.append((began, step.at))
                began = None
        if began is not None:
            found.append((began, self.ended_at or now))
        return found


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A request to a model; `index` counts those of the run from 0. Times are seconds since the epoch."""

    index: int
    model: str
    asked_at: float
    answered_at: float | None
    first_seconds: float | None
    messages: int
    tools: int
    finish_reason: str | None
    error: str | None
    usage: TokenUsage | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run; `requests` is None where nobody here has seen what its model was asked. `next_cursor`: of its calls."""

    run_id: str
    agent_id: str | None
    user_id: str | None
    chat_id: str | None
    question: str
    text: str
    state: RunState
    reason: str
    began_at: float
    ended_at: float | None
    calls: tuple[ShownCall, ...]
    requests: tuple[ShownRequest, ...] | None
    questions: tuple[InputRequest, ...] = ()
    status: str = ""
    next_cursor: str | None = None

    @property
    def is_live(self) -> bool:
        """Return whether it goes on."""
        return self.state in ("running", "waiting")

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self.ended_at or time.time()) - self.began_at

    @property
    def failed_calls(self) -> list[ShownCall]:
        """The calls that failed."""
        return [call for call in self.calls if call.is_failed]

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all its requests, None where no endpoint said any."""
        used = [request.usage for request in self.requests or () if request.usage is not None]
        return sum(used[1:], used[0]) if used else None


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list: how many calls it has, those that have not ended, and the first that failed."""

    run_id: str
    agent_id: str
    user_id: str | None
    chat_id: str | None
    state: RunState
    began_at: float
    ended_at: float | None
    calls: int
    open_calls: tuple[ShownCall, ...]
    failed_calls: tuple[ShownCall, ...]
    status: str

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self.ended_at or time.time()) - self.began_at


def list_seen(seen: SeenRun) -> ListedRun:
    """Return a run as it was seen, for a list: what it said and most of its calls stand in none."""
    state, _ = _read_ending(seen)
    ended = (call for call in seen.calls.values() if call.error_code is not None)
    failed = islice((call for call in ended if find_ending(call.error_code or "").is_failure), FAILURES_LISTED)
    return ListedRun(
        run_id=seen.run.run_id,
        agent_id=seen.run.agent_id,
        user_id=seen.run.user_id,
        chat_id=seen.run.chat_id,
        state=state,
        began_at=seen.began_at,
        ended_at=seen.ended_at,
        calls=len(seen.calls),
        open_calls=tuple(map(show_seen_call, seen.open_calls)),
        failed_calls=tuple(map(show_seen_call, failed)),
        status=seen.status,
    )


def show_seen(seen: SeenRun, question: str = "") -> ShownRun:
    """Return a run as it was seen."""
    state, reason = _read_ending(seen)
    return ShownRun(
        run_id=seen.run.run_id,
        agent_id=seen.run.agent_id,
        user_id=seen.run.user_id,
        chat_id=seen.run.chat_id,
        question=question,
        text=seen.text,
        state=state,
        reason=reason,
        began_at=seen.began_at,
        ended_at=seen.ended_at,
        calls=tuple(map(show_seen_call, seen.calls.values())),
        requests=tuple(_show_request(index, sent) for index, sent in enumerate(seen.requests)),
        questions=tuple(seen.questions.values()),
        status=seen.status,
    )


def show_stored(turn: TurnSummary, calls: Sequence[CallSummary], next_cursor: str | None, *, is_live: bool) -> ShownRun:
    """Return a run as the store keeps it: what its model was asked, and how it ended, it does not keep."""
    shown = tuple(show_stored_call(one) for one in calls)
    state: RunState = "ended"
    if is_live:
        state = "waiting" if any(call.status == "waiting" for call in shown) else "running"
    return ShownRun(
        run_id=turn.run_id,
        agent_id=turn.agent_id,
        user_id=turn.user_id,
        chat_id=turn.chat_id,
        question=turn.question,
        text=turn.answer,
        state=state,
        reason="",
        began_at=turn.began_at,
        ended_at=None if is_live else turn.last_at,
        calls=shown,
        requests=None,
        next_cursor=next_cursor,
    )


def show_seen_call(call: SeenCall) -> ShownCall:
    """Return a call as it was seen."""
    return ShownCall(
        call_id=call.tool_call_id,
        name=call.tool_name,
        arguments=write_arguments(call.arguments),
        result=call.result,
        status=_read_status(call.ended_at, call.error_code, call.steps),
        error_code=call.error_code,
        started_at=call.started_at,
        ended_at=call.ended_at,
        duration_ms=call.duration_ms,
        round_index=call.round_index,
        sequence_index=call.sequence_index,
        steps=tuple(call.steps),
    )


def show_stored_call(summary: CallSummary) -> ShownCall:
    """Return a call as the store keeps it."""
    call = summary.call
    return ShownCall(
        call_id=call.tool_call_id,
        name=call.tool_name,
        arguments=call.arguments,
        result=call.result,
        status=_read_status(call.ended_at, call.error_code, call.events),
        error_code=call.error_code,
        started_at=call.started_at,
        ended_at=call.ended_at,
        duration_ms=call.duration_ms,
        round_index=call.round_index,
        sequence_index=call.sequence_index,
        steps=call.events,
    )


def write_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Return arguments as text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _show_request(index: int, sent: SentRequest) -> ShownRequest:
    answer = sent.answer
    return ShownRequest(
        index=index,
        model=sent.model,
        asked_at=sent.asked_at,
        answered_at=sent.answered_at,
        first_seconds=answer.first_seconds if answer else None,
        messages=sent.messages,
        tools=sent.tools,
        finish_reason=answer.finish_reason if answer else None,
        error=answer.error if answer else None,
        usage=sent.usage,
        is_kept=sent.is_kept,
    )


def _read_status(ended_at: float | None, error_code: str | None, steps: Iterable[StoredStatus]) -> CallStatus:
    if ended_at is not None:
        return name_state(ended_at, error_code)
    last = next(reversed(tuple(steps)), None)
    return "waiting" if last is not None and last.status == PENDING and last.message != APPROVED else "running"


def _read_ending(seen: SeenRun) -> tuple[RunState, str]:
    match seen.ending:
        case Error(message=message, code=code):
            return "error", f"{message} ({code})"
        case Done(finish_reason="cancelled"):
            return "stopped", "it was stopped"
        case Done(finish_reason="length"):
            return "complete", "the model reached the most that it may write"
        case Done(finish_reason="content_filter"):
            return "complete", "the filter of the model's endpoint cut the answer"
        case Done(finish_reason="refusal"):
            return "complete", "the model refused to answer"
        case Done(finish_reason="max_turns"):
            return "complete", "the model used up the tool calls of its turn"
        case Done(finish_reason="tool_calls"):
            return "complete", "a call is handed over to the client"
        case Done():
            return "complete", ""
        case None:
            return ("waiting" if seen.questions else "running"), ""
