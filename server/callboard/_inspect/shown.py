"""Runs, calls and requests as pages show them: the watch fills them in, or they are made of what the store keeps."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from callboard._history.records import StoredStatus
from callboard.calls.approval import APPROVED, PENDING
from callboard.models import ChatDict, TokenUsage
from callboard.observers import ModelAnswered
from callboard.storage import CallState, CallSummary, OpenRun, TurnSummary, name_state
from callboard_protocol import Done, Error, InputRequest, find_ending, format_ending

CallStatus = CallState | Literal["waiting"]
RunState = Literal["running", "waiting", "complete", "error", "stopped", "ended"]


@dataclass(slots=True)
class ShownCall:
    """A call; in a list its arguments and its result may be cut. Times are seconds since the epoch."""

    call_id: str
    name: str
    arguments: str
    result: str | None
    error_code: str | None
    started_at: float
    ended_at: float | None
    duration_ms: int | None
    round_index: int
    sequence_index: int
    steps: Sequence[StoredStatus]
    parent_call_id: str | None = None
    files: tuple[Mapping[str, Any], ...] = ()

    @property
    def status(self) -> CallStatus:
        """How it went, or goes."""
        if self.ended_at is not None:
            return name_state(self.ended_at, self.error_code)
        last = self.steps[-1] if self.steps else None
        return "waiting" if last is not None and last.status == PENDING and last.message != APPROVED else "running"

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


@dataclass(slots=True)
class SentRequest:
    """A request to a model; `index` counts those of the run from 0. Times are seconds since the epoch.

    `shared` is how many messages it begins with that the request before it had too, `tail` are those that follow.
    `offered` are the schemas of its tools, one object for all requests of the run that have the same. `is_kept`: False
    where its messages were let go of, or a framework did not say them.
    """

    index: int
    model: str
    asked_at: float
    messages: int
    tools: int
    shared: int = 0
    tail: tuple[ChatDict, ...] = ()
    offered: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    is_kept: bool = False
    answer: ModelAnswered | None = None
    answered_at: float | None = None

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens that it cost, where the endpoint said so."""
        return self.answer.usage if self.answer else None


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run; `requests` is None where nobody here has seen what its model was asked. `next_cursor`: of its calls.

    `texts` are what was said before the calls of a round, by the round's index, and `text` what was said last.
    """

    run_id: str
    agent_id: str | None
    user_id: str | None
    chat_id: str | None
    question: str
    texts: Mapping[int, str]
    text: str
    state: RunState
    reason: str
    began_at: float
    ended_at: float | None
    calls: tuple[ShownCall, ...]
    requests: tuple[SentRequest, ...] | None
    questions: tuple[InputRequest, ...] = ()
    status: str = ""
    next_cursor: str | None = None
    user_name: str | None = None
    task: str | None = None

    @property
    def parts(self) -> list[str | ShownCall]:
        """What it said and its calls, in their order."""
        found: list[str | ShownCall] = []
        told: set[int] = set()
        for call in sorted(self.calls, key=lambda call: (call.round_index, call.sequence_index)):
            if call.round_index not in told and (text := self.texts.get(call.round_index)):
                found.append(text)
            told.add(call.round_index)
            found.append(call)
        return [*found, self.text] if self.text else found

    @property
    def said(self) -> str:
        """All that it said, without its calls."""
        return "".join([*(self.texts[index] for index in sorted(self.texts)), self.text])

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
    """A run in a list: who asked whom for what, how many calls it made, and how it went.

    `server` is where it goes on if that is not here.
    """

    run_id: str
    agent_id: str | None
    user_id: str | None
    user_name: str | None
    chat_id: str | None
    question: str
    state: RunState
    reason: str
    began_at: float
    ended_at: float | None
    calls: int
    errors: int
    failed_calls: Sequence[ShownCall] = ()
    open_calls: Sequence[ShownCall] = ()
    status: str = ""
    task: str | None = None
    server: str | None = None

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self.ended_at or time.time()) - self.began_at


def list_stored(turn: TurnSummary) -> ListedRun:
    """Return a run as the store keeps it, for a list."""
    state, reason = read_ending(turn.ending)
    return ListedRun(
        run_id=turn.run_id,
        agent_id=turn.agent_id,
        user_id=turn.user_id,
        user_name=turn.user_name,
        chat_id=turn.chat_id,
        question=turn.question,
        state=state,
        reason=reason,
        began_at=turn.began_at,
        ended_at=turn.last_at,
        calls=turn.calls,
        errors=turn.errors,
        failed_calls=[show_stored_call(one) for one in turn.failures],
    )


def list_elsewhere(run: OpenRun, turn: TurnSummary | None) -> ListedRun:
    """Return a run that goes on at another server, for a list; `turn` is its turn if the store has it."""
    return ListedRun(
        run_id=run.run_id,
        agent_id=run.agent_id,
        user_id=run.user_id,
        user_name=turn.user_name if turn else None,
        chat_id=run.chat_id,
        question=turn.question if turn else "",
        state="running",
        reason="",
        began_at=run.begun_at,
        ended_at=None,
        calls=0,
        errors=0,
        server=run.owner[:8] or "none: it is about to be taken over",
    )


def show_stored(turn: TurnSummary, calls: Sequence[CallSummary], next_cursor: str | None, *, is_live: bool) -> ShownRun:
    """Return a run as the store keeps it: what its model was asked it does not keep."""
    shown = tuple(show_stored_call(one) for one in calls)
    state, reason = read_ending(turn.ending)
    if is_live:
        state = "waiting" if any(call.status == "waiting" for call in shown) else "running"
    return ShownRun(
        run_id=turn.run_id,
        agent_id=turn.agent_id,
        user_id=turn.user_id,
        chat_id=turn.chat_id,
        question=turn.question,
        texts=turn.texts,
        text=turn.answer,
        state=state,
        reason=reason,
        began_at=turn.began_at,
        ended_at=None if is_live else turn.last_at,
        calls=shown,
        requests=None,
        next_cursor=next_cursor,
        user_name=turn.user_name,
    )


def show_stored_call(summary: CallSummary) -> ShownCall:
    """Return a call as the store keeps it."""
    call = summary.call
    return ShownCall(
        call_id=call.tool_call_id,
        name=call.tool_name,
        arguments=call.arguments,
        result=call.result,
        error_code=call.error_code,
        started_at=call.started_at,
        ended_at=call.ended_at,
        duration_ms=call.duration_ms,
        round_index=call.round_index,
        sequence_index=call.sequence_index,
        steps=call.events,
        parent_call_id=call.parent_call_id,
    )


def write_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Return arguments as text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def read_ending(ending: Done | Error | None) -> tuple[RunState, str]:
    """Return the state of a run that is over, and why it is in it; `ended` if how it ended is not known."""
    match ending:
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
            return "ended", ""
