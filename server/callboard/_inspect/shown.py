"""Runs and requests as pages show them. They are made from a watched run or from the store."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from callboard.calls import EndedCall, RunningCall, StatusReport
from callboard.models import ChatDict, TokenUsage
from callboard.observers import ModelAnswered
from callboard.openwebui.requests import strip_context
from callboard.storage.summaries import CallSummary, OpenRun, TurnSummary
from callboard.storage.values import StoredCall
from callboard_protocol import Done, Error, ToolCallComplete, ToolCallError, ToolCallStart

RunState = Literal["running", "waiting", "complete", "error", "stopped", "ended"]
ShownCall = RunningCall | EndedCall


@dataclass(slots=True)
class SentRequest:
    """A request to a model. Times are in seconds since the epoch.

    Attributes:
        index: Its number in the run, from 0.
        message_count: The number of its messages.
        messages: Its messages; None if they were dropped to save memory, or if a framework did not report them.
        shared: The number of messages at its beginning that equal those of the previous request.
        offered: The schemas of its tools. Requests of a run with equal tools share one object.
    """

    index: int
    model: str
    asked_at: float
    message_count: int
    messages: tuple[ChatDict, ...] | None = None
    shared: int = 0
    offered: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: ModelAnswered | None = None

    @property
    def answered_at(self) -> float | None:
        """The time at which its answer ended; None before the end."""
        return self.asked_at + self.answer.seconds if self.answer else None

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens that it used; None if the endpoint did not report them."""
        return self.answer.usage if self.answer else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """A run as a page shows it. Times are in seconds since the epoch.

    Attributes:
        texts: The texts before the calls of each round, by the round's index.
        text: The text after the last call.
        calls: All calls or one page of them; in a list of stored runs, only the failed calls.
        call_count: The number of all calls.
        error_count: The number of all failed calls.
        next_cursor: The cursor of the next page of calls.
        requests: The requests to models; None if this server has not seen them.
        said: The user's messages to the run, each after its time.
        task: The kind of a background task; None for other runs.
        is_continued: It had begun before this server has watched it, or has waited since.
        server: The server that runs it; None if this server does or the run has ended.
    """

    run_id: str
    agent_id: str | None
    user_id: str | None
    user_name: str | None
    chat_id: str | None
    state: RunState
    began_at: float
    ended_at: float | None
    reason: str = ""
    question: str = ""
    texts: Mapping[int, str] = field(default_factory=dict)
    text: str = ""
    calls: tuple[ShownCall, ...] = ()
    call_count: int = 0
    error_count: int = 0
    next_cursor: str | None = None
    requests: tuple[SentRequest, ...] | None = None
    said: Sequence[tuple[float, str]] = ()
    status: str = ""
    task: str | None = None
    is_continued: bool = False
    server: str | None = None

    @property
    def title(self) -> str:
        """The question without the parts that Open WebUI adds, or the name of a background task; "" if unknown."""
        if self.task is not None:
            return self.task.replace("_", " ").capitalize()
        return strip_context(self.question)

    @property
    def whole_text(self) -> str:
        """All of its texts, joined without separators."""
        return "".join([*(self.texts[index] for index in sorted(self.texts)), self.text])

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.state in ("running", "waiting")

    @property
    def seconds(self) -> float:
        """Its duration, or its duration so far."""
        return (self.ended_at or time.time()) - self.began_at

    @property
    def failed_calls(self) -> list[ShownCall]:
        """The calls that failed."""
        return [call for call in self.calls if call.is_failed]

    @property
    def running_calls(self) -> list[ShownCall]:
        """The calls that have not ended."""
        return [call for call in self.calls if isinstance(call, RunningCall)]

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all its requests; None if no endpoint reported tokens."""
        used = [request.usage for request in self.requests or () if request.usage is not None]
        return sum(used[1:], used[0]) if used else None


def show_stored(
    turn: TurnSummary, calls: Sequence[CallSummary], next_cursor: str | None = None, *, is_live: bool = False
) -> ShownRun:
    """Return a stored run with these calls."""
    shown = tuple(read_stored_call(one.call) for one in calls)
    state, reason = read_ending(turn.ending)
    if is_live or turn.waiting:
        state = "waiting" if turn.waiting else "running"
    return ShownRun(
        run_id=turn.run_id,
        agent_id=turn.agent_id,
        user_id=turn.user_id,
        user_name=turn.user_name,
        chat_id=turn.chat_id,
        state=state,
        began_at=turn.began_at,
        ended_at=None if is_live or turn.waiting else turn.last_at,
        reason=reason,
        question=turn.question,
        texts=turn.texts,
        text=turn.answer,
        said=turn.said,
        calls=shown,
        call_count=turn.calls,
        error_count=turn.errors,
        next_cursor=next_cursor,
    )


def list_elsewhere(run: OpenRun, turn: TurnSummary | None) -> ShownRun:
    """Return a run of another server. `turn` is its turn, if it is stored."""
    return ShownRun(
        run_id=run.run_id,
        agent_id=run.agent_id,
        user_id=run.user_id,
        user_name=turn.user_name if turn else None,
        chat_id=run.chat_id,
        state="waiting" if turn and turn.waiting else "running",
        began_at=run.begun_at,
        ended_at=None,
        question=turn.question if turn else "",
        server=run.owner[:8] or "none: it is about to be taken over",
    )


def read_stored_call(call: StoredCall) -> ShownCall:
    """Return a stored call in the form that follows from events, as for a watched run."""
    start = ToolCallStart(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        tool_args=call.arguments,
        round_index=call.round_index,
        sequence_index=call.sequence_index,
        parent_call_id=call.parent_call_id or "",
    )
    steps = [StatusReport(step.status, step.message, step.progress, step.at) for step in call.events]
    running = RunningCall(start, call.started_at, steps)
    if call.ended_at is None:
        return running
    result = call.result or ""
    end: ToolCallComplete | ToolCallError
    if call.error_code is None:
        end = ToolCallComplete(tool_call_id=call.tool_call_id, result=result, duration_ms=call.duration_ms)
    else:
        error = result.removeprefix("Error: ")
        end = ToolCallError(
            tool_call_id=call.tool_call_id, error=error, code=call.error_code, duration_ms=call.duration_ms
        )
    return replace(running.end(end), ended_at=call.ended_at)


FINISHED_BECAUSE = {
    "length": "the model reached its length limit",
    "content_filter": "the content filter of the model's endpoint cut the answer",
    "refusal": "the model refused to answer",
    "max_turns": "the model used up the tool calls of its turn",
    "tool_calls": "the client has to run a tool call",
}
"""The texts about finish reasons of complete runs. For other finish reasons, pages show no text."""


def read_ending(ending: Done | Error | None) -> tuple[RunState, str]:
    """Return the state of an ended run and the reason. The state is `ended` if the last event is unknown."""
    match ending:
        case Error(message=message, code=code):
            return "error", f"{message} ({code})"
        case Done(finish_reason="cancelled"):
            return "stopped", "it was stopped"
        case Done(finish_reason=reason):
            return "complete", FINISHED_BECAUSE.get(reason, "")
        case None:
            return "ended", ""
