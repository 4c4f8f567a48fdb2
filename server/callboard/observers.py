"""Observers: functions that are called with every event of runs except `Parked`, for your own metrics, traces and logs.

    def observe(run: ObservedRun, observation: Observation) -> None: ...

    Callboard(agents, observers=[observe])

An observer is a plain function, called in the event loop and in the order of the events, so it must not take long. Its
exceptions are logged and do not affect the run.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

import structlog

from callboard._streams import closing_stream
from callboard.models import (
    ChatDict,
    ChatModel,
    Finish,
    ModelDelta,
    ModelRequest,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from callboard.models.messages import content_text
from callboard_protocol import Event

__all__ = [
    "ModelAnswered",
    "ModelAsked",
    "Observation",
    "ObservedRequest",
    "ObservedRun",
    "Observer",
    "RunLeft",
    "RunPrepared",
    "RunTakenOver",
]

_log = structlog.get_logger(__name__)
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run; `chat_id`, `user_id`, `task` (a background task) and `user_name` are None if the client sent none."""

    run_id: str
    agent_id: str
    chat_id: str | None = None
    user_id: str | None = None
    task: str | None = None
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class RunPrepared:
    """The agent is about to begin. `messages` is its conversation, which observers must not change.

    `CALLBOARD_HISTORY_TOKENS` left `left_out_count` messages out of it; `left_out` has the newest of them.
    """

    messages: Sequence[ChatDict]
    left_out: Sequence[ChatDict] = ()
    left_out_count: int = 0


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A request is sent to a model, which begins a round. `messages` and `tools` are counts.

    Several requests may be open; `number` identifies the `ModelAnswered` of this one. `request` is the request itself,
    which observers must not change; None if a framework sends it. It may contain secrets of the agent's own prompt.
    """

    model: str
    messages: int
    tools: int
    number: int = field(default=0, compare=False)
    request: ModelRequest | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model has answered. `error` is the class name of the exception if the request failed or was stopped.

    `first_seconds` is the time to the first piece of the answer, None if there was none. `finish_reason` and `usage`
    are None if the endpoint or the framework did not report them. If no tokens are reported, `text_chars` is the known
    number of characters of the request and the answer, otherwise 0.
    """

    model: str
    seconds: float
    first_seconds: float | None
    finish_reason: str | None
    usage: TokenUsage | None
    error: str | None
    text_chars: int = 0
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RunTakenOver:
    """This server has taken over the run of a server that was lost or has released it, and continues or ends it.

    `losses` is the number of servers that the run has lost.
    """

    losses: int


@dataclass(frozen=True, slots=True)
class RunLeft:
    """This server has released the run to another server. It is the last observation of the run here."""


Observation = Event | RunPrepared | ModelAsked | ModelAnswered | RunTakenOver | RunLeft
"""The events of the protocol as clients receive them (`run_start`, `tool_call_start` … `done`), and requests to models.

An event is observed when it is appended to its run, before it is stored and before clients receive it.

After a takeover, the new server's observations begin with `RunTakenOver` and the ends of open calls that cannot
continue; earlier events are not repeated.

`round_index` of a `tool_call_start` is its round. Requests of agents of other frameworks are observed as the framework
reports them, including requests of agents in its tools.
"""

Observer = Callable[[ObservedRun, Observation], None]

STOPPED = frozenset({"CancelledError", "GeneratorExit"})
"""The errors of a `ModelAnswered` that are not failures: the run was stopped, or stopped reading the answer."""


@dataclass(frozen=True, slots=True)
class RunObservers:
    """The observers of one run."""

    run: ObservedRun
    observers: Sequence[Observer] = ()

    def tell(self, observation: Observation) -> None:
        """Call every observer; the exceptions of one do not affect the others or the run."""
        for observer in self.observers:
            try:
                observer(self.run, observation)
            except Exception as error:  # noqa: BLE001 - foreign code: an observer may raise anything
                _log.warning("observer_failed", run_id=self.run.run_id, what=type(observation).__name__, exc_info=error)

    def watch(self, model: ChatModel) -> ChatModel:
        """Return the model with its requests observed."""
        return _WatchedModel(model, self) if self.observers else model


class ObservedRequest:
    """An open request to a model: calls `tell` with `ModelAsked` when it is made, and with `ModelAnswered` at its end.

    Set `finish_reason` and `usage` before the end. As a context manager it ends with the block, and with its exception.
    """

    def __init__(
        self,
        tell: Callable[[Observation], None],
        model: str,
        messages: int,
        tools: int,
        request: ModelRequest | None = None,
    ) -> None:
        self.model = model
        self.finish_reason: str | None = None
        self.usage: TokenUsage | None = None
        self.text_chars = 0
        self.has_ended = False
        self._number = next(_NUMBERS)
        self._tell = tell
        self.first_seconds: float | None = None
        """The time to the first piece of the answer; None until then."""
        tell(ModelAsked(model, messages, tools, self._number, request))
        # After the observers, because their work is not the model's time.
        self._began = time.monotonic()

    def receive(self) -> None:
        """Note the time of the first piece of the answer; later calls do nothing."""
        if self.first_seconds is None:
            self.first_seconds = time.monotonic() - self._began

    def end(self, error: BaseException | None = None) -> None:
        """End the request, with `error` if it failed; later calls do nothing."""
        if self.has_ended:
            return
        self.has_ended = True
        self._tell(
            ModelAnswered(
                model=self.model,
                seconds=time.monotonic() - self._began,
                first_seconds=self.first_seconds,
                finish_reason=self.finish_reason,
                usage=self.usage,
                error=type(error).__name__ if error else None,
                text_chars=0 if self.usage and self.usage.total_tokens > 0 else self.text_chars,
                number=self._number,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end(error)


class _WatchedModel:
    def __init__(self, model: ChatModel, observers: RunObservers) -> None:
        self._model = model
        self._observers = observers

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        async with closing_stream(self._model.stream(request)) as stream:
            with ObservedRequest(
                self._observers.tell, self.name, len(request.messages), len(request.tools), request
            ) as observed:
                observed.text_chars = sum(len(content_text(message.get("content"))) for message in request.messages)
                async for delta in stream:
                    # Text first, because there is a piece of text for each token.
                    if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta):
                        observed.text_chars += len(delta.text)
                    elif isinstance(delta, ToolCallDelta):
                        observed.text_chars += len(delta.arguments or "")
                    elif isinstance(delta, Finish):
                        observed.finish_reason = delta.reason
                    elif isinstance(delta, TokenUsage):
                        observed.usage = delta
                    observed.receive()
                    yield delta

    async def aclose(self) -> None:
        await self._model.aclose()


NO_OBSERVERS = RunObservers(ObservedRun("", ""))
