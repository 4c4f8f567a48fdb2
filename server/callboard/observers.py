"""Observers: functions that are called with everything a run does, for your own metrics, traces and logs.

    def observe(run: ObservedRun, observation: Observation) -> None: ...

    Callboard(agents, observers=[observe])

An observer is a plain function. It is called in the event loop, in the order of the observations, so it must return
fast. Its exceptions are logged and do not affect the run.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

import structlog

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
    content_text,
)
from callboard_protocol import Event

_log = structlog.get_logger(__name__)
_NUMBERS = count(1)


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A run. `task` is the name of a background task. A field is None if the client sent no value for it."""

    run_id: str
    agent_id: str
    chat_id: str | None = None
    user_id: str | None = None
    task: str | None = None
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class RunPrepared:
    """The agent is about to start with the conversation `messages`, which must not be changed.

    `left_out_count` messages of earlier turns did not fit (`CALLBOARD_HISTORY_TOKENS`); `left_out` are the newest of
    them.
    """

    messages: Sequence[ChatDict]
    left_out: Sequence[ChatDict] = ()
    left_out_count: int = 0


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A request is sent to a model, with this number of `messages` and `tools`. A round begins.

    Several requests may run at the same time; the `ModelAnswered` of this one has the same `number`. `request` must not
    be changed; it is None if a framework sends the request. Secrets in the agent's own prompt are not removed from it.
    """

    model: str
    messages: int
    tools: int
    number: int = field(default=0, compare=False)
    request: ModelRequest | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model has answered, or the request has failed or was stopped: then `error` is the name of the exception.

    `first_seconds` is the time to the first piece of the answer, None if there was none. `finish_reason` and `usage`
    are None if the endpoint did not send them, or a framework does not pass them on. If there is no `usage` or it has
    no tokens, `text_chars` counts the known characters of text in the request and the answer. `deltas` are the pieces
    of the answer if contents are traced, otherwise empty.
    """

    model: str
    seconds: float
    first_seconds: float | None
    finish_reason: str | None
    usage: TokenUsage | None
    error: str | None
    text_chars: int = 0
    number: int = field(default=0, compare=False)
    deltas: Sequence[ModelDelta] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RunTakenOver:
    """This server has taken over the run from a server that is gone; `losses` counts the servers that it has lost."""

    losses: int


@dataclass(frozen=True, slots=True)
class RunLeft:
    """This server leaves the run to another server. It is the last observation of the run on this server."""


Observation = Event | RunPrepared | ModelAsked | ModelAnswered | RunTakenOver | RunLeft
"""The events of the protocol as clients get them (`run_start`, `tool_call_start` … `done`), and requests to models.

On a server that takes over a run, the observations begin with `RunTakenOver` and with the ends of calls that cannot
continue; the earlier events are not repeated.

The `round_index` of a `tool_call_start` is its round. For an agent of a framework there are observations of the
requests that the framework reports, also of requests of agents in its tools. `callboard.calls.follow_call` makes
running and ended calls from the events.
"""

Observer = Callable[[ObservedRun, Observation], None]

STOPPED = frozenset({"CancelledError", "GeneratorExit"})
"""The errors of a `ModelAnswered` that are not failures: the run was stopped, or did not need the rest."""


@dataclass(frozen=True, slots=True)
class RunObservers:
    """The observers of one run; `keeps_answers`: `ModelAnswered` has the whole answer."""

    run: ObservedRun
    observers: Sequence[Observer] = ()
    keeps_answers: bool = False

    def tell(self, observation: Observation) -> None:
        """Call each observer. An exception of one does not affect the others or the run."""
        for observer in self.observers:
            try:
                observer(self.run, observation)
            except Exception as error:  # noqa: BLE001 - foreign code: an observer may raise anything
                what = type(observation).__name__
                _log.warning("observer_failed", run_id=self.run.run_id, what=what, exc_info=error)

    def watch(self, model: ChatModel) -> ChatModel:
        """Return a model whose requests are observed."""
        return _WatchedModel(model, self) if self.observers else model


class ObservedRequest:
    """A request to a model: calls `tell` with `ModelAsked` at once and with `ModelAnswered` at the end.

    Set `finish_reason` and `usage` before the end. As a context manager it ends with the context, and with its error.
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
        self.deltas: list[ModelDelta] = []
        self.has_ended = False
        self._number = next(_NUMBERS)
        self._tell = tell
        self._began = time.monotonic()
        self.first_seconds: float | None = None
        """The time to the first piece of the answer, None before that."""
        tell(ModelAsked(model, messages, tools, self._number, request))

    def receive(self) -> None:
        """Note the time if this is the first piece of the answer."""
        if self.first_seconds is None:
            self.first_seconds = time.monotonic() - self._began

    def end(self, error: BaseException | None = None) -> None:
        """End the request, with `error` if it failed; a second end is ignored."""
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
                deltas=self.deltas,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end(error)


class _WatchedModel:
    """Sends the requests to a model and observes them."""

    def __init__(self, model: ChatModel, observers: RunObservers) -> None:
        self._model = model
        self._observers = observers

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        stream = self._model.stream(request)
        try:
            with ObservedRequest(
                self._observers.tell, self.name, len(request.messages), len(request.tools), request
            ) as observed:
                observed.text_chars = sum(len(content_text(message.get("content"))) for message in request.messages)
                keeps_answer = self._observers.keeps_answers
                async for delta in stream:
                    # Text first, because there is one such piece for each token.
                    if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta):
                        observed.text_chars += len(delta.text)
                    elif isinstance(delta, ToolCallDelta):
                        observed.text_chars += len(delta.arguments or "")
                    elif isinstance(delta, Finish):
                        observed.finish_reason = delta.reason
                    elif isinstance(delta, TokenUsage):
                        observed.usage = delta
                    if observed.first_seconds is None:
                        observed.receive()
                    if keeps_answer:
                        observed.deltas.append(delta)
                    yield delta
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def aclose(self) -> None:
        await self._model.aclose()


NO_OBSERVERS = RunObservers(ObservedRun("", ""))
