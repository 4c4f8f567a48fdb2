"""Runs and requests as pages show them: made from what this server has seen of a run, or from what the store has."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from callboard.calls import EndedCall, RunningCall, StatusReport
from callboard.models import ChatDict, TokenUsage
from callboard.observers import ModelAnswered
from callboard.storage import CallSummary, OpenRun, StoredCall, TurnSummary
from callboard_protocol import Done, Error, InputRequest, ToolCallComplete, ToolCallError, ToolCallStart

RunState = Literal["running", "waiting", "complete", "error", "stopped", "ended"]
ShownCall = RunningCall | EndedCall


@dataclass(slots=True)
class SentRequest:
    """A request to a model; `index` is its number in the run, from 0. Times are in seconds since the epoch.

    Its first `shared` messages are those of the request before it, and `tail` has the others; None if they were dropped
    to save memory, or a framework did not report them. `offered` are the schemas of its tools; requests of a run with
    equal tools share one object.
    """

    index: int
    model: str
    asked_at: float
    messages: int
    tools: int
    shared: int = 0
    tail: tuple[ChatDict, ...] | None = None
    offered: tuple[Mapping[str, Any], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: ModelAnswered | None = None

    @property
    def answered_at(self) -> float | None:
        """When its answer ended, None before."""
        return self.asked_at + self.answer.seconds if self.answer else None

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens that it used, None if the endpoint did not say."""
        return self.answer.usage if self.answer else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """A run as a page shows it. Times are in seconds since the epoch.

    `calls` are all calls, one page of them, or in a list of stored runs those that failed; `call_count` and
    `error_count` count all. `texts` are the texts before the calls of each round, by the round's index; `text` is the
    text after the last call. `requests` is None if this server has not seen what the model was sent. `next_cursor` is
    that of the calls. `server` is where the run goes on, None for this server.
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
    questions: tuple[InputRequest, ...] = ()
    status: str = ""
    task: str | None = None
    server: str | None = None

    @property
    def parts(self) -> list[str | ShownCall]:
        """Its texts and calls, in order."""
        found: list[str | ShownCall] = []
        rounds: set[int] = set()
        for call in sorted(self.calls, key=lambda call: call.place):
            round_index, _ = call.place
            if round_index not in rounds and (text := self.texts.get(round_index)):
                found.append(text)
            rounds.add(round_index)
            found.append(call)
        return [*found, self.text] if self.text else found

    @property
    def whole_text(self) -> str:
        """All of its texts, joined."""
        return "".join([*(self.texts[index] for index in sorted(self.texts)), self.text])

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
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
    def running_calls(self) -> list[ShownCall]:
        """The calls that have not ended."""
        return [call for call in self.calls if isinstance(call, RunningCall)]

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all its requests, None if no endpoint reported any."""
        used = [request.usage for request in self.requests or () if request.usage is not None]
        return sum(used[1:], used[0]) if used else None


def show_stored(
    turn: TurnSummary, calls: Sequence[CallSummary], next_cursor: str | None = None, *, is_live: bool = False
) -> ShownRun:
    """Return a run as the store has it, with these of its calls."""
    shown = tuple(read_stored_call(one.call) for one in calls)
    state, reason = read_ending(turn.ending)
    if is_live:
        state = "waiting" if any(call.status == "waiting" for call in shown) else "running"
    return ShownRun(
        run_id=turn.run_id,
        agent_id=turn.agent_id,
        user_id=turn.user_id,
        user_name=turn.user_name,
        chat_id=turn.chat_id,
        state=state,
        began_at=turn.began_at,
        ended_at=None if is_live else turn.last_at,
        reason=reason,
        question=turn.question,
        texts=turn.texts,
        text=turn.answer,
        calls=shown,
        call_count=turn.calls,
        error_count=turn.errors,
        next_cursor=next_cursor,
    )


def list_elsewhere(run: OpenRun, turn: TurnSummary | None) -> ShownRun:
    """Return a run that another server runs; `turn` is its turn if the store has it."""
    return ShownRun(
        run_id=run.run_id,
        agent_id=run.agent_id,
        user_id=run.user_id,
        user_name=turn.user_name if turn else None,
        chat_id=run.chat_id,
        state="running",
        began_at=run.begun_at,
        ended_at=None,
        question=turn.question if turn else "",
        server=run.owner[:8] or "none: it is about to be taken over",
    )


def read_stored_call(call: StoredCall) -> ShownCall:
    """Return a stored call as the events of its run would have made it."""
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
    "content_filter": "the filter of the model's endpoint cut the answer",
    "refusal": "the model refused to answer",
    "max_turns": "the model used up the tool calls of its turn",
    "tool_calls": "the client has to run a tool call",
}
"""Why a run is complete, by its finish reason; nothing is said of the others."""


def read_ending(ending: Done | Error | None) -> tuple[RunState, str]:
    """Return the state of a run that has ended, and the reason; `ended` if the last event is not known."""
    match ending:
        case Error(message=message, code=code):
            return "error", f"{message} ({code})"
        case Done(finish_reason="cancelled"):
            return "stopped", "it was stopped"
        case Done(finish_reason=reason):
            return "complete", FINISHED_BECAUSE.get(reason, "")
        case None:
            return "ended", ""
