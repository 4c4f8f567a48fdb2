"""Observers, who are told what runs do: for metrics, traces and logs of one's own.

    def tell(run: ObservedRun, what: Observation) -> None: ...

    Callboard(agents, observers=[tell])

An observer is a plain function in the event loop, and told of everything in its order; what takes long belongs
elsewhere. What it raises is logged and costs the run nothing.
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
    """The run; `chat_id`, `user_id`, `task` (a background task) and `user_name` are None if the client sent none."""

    run_id: str
    agent_id: str
    chat_id: str | None = None
    user_id: str | None = None
    task: str | None = None
    user_name: str | None = None


@dataclass(frozen=True, slots=True)
class RunPrepared:
    """The agent is about to begin: `messages` is the conversation that it is given, to be read and not changed.

    `left_out` are the newest of the messages of earlier turns that had no place in it (`CALLBOARD_HISTORY_TOKENS`), of
    `left_out_count` in all.
    """

    messages: Sequence[ChatDict]
    left_out: Sequence[ChatDict] = ()
    left_out_count: int = 0


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A request goes to a model: the beginning of a round. `messages` and `tools` are how many it is sent.

    `number` is the same in the `ModelAnswered` that follows: several may be under way. `request` is what is sent, to be
    read and not changed; None where a framework sends it. Its messages are kept from no secret that stands in a prompt
    of the agent's own.
    """

    model: str
    messages: int
    tools: int
    number: int = field(default=0, compare=False)
    request: ModelRequest | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model has answered; `error` is the exception's name where it failed, or was stopped (`GeneratorExit`).

    `first_seconds` is the time to the first piece of the answer, None where there was none. `finish_reason` and
    `usage` are None where the endpoint gave none, or a framework does not pass them on; then, and where `usage` says of
    no token, `text_chars` are the characters of text that went there and back, as far as they are known. `deltas` are
    the pieces of the answer, where contents are traced.
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
    """This server has the run from one that is gone, after so many of them; it goes on with it, or ends it at once."""

    losses: int


@dataclass(frozen=True, slots=True)
class RunLeft:
    """This server stops the run without an end: another one goes on with it. The last that is told of it here."""


Observation = Event | RunPrepared | ModelAsked | ModelAnswered | RunTakenOver | RunLeft
"""The events of the protocol as clients get them (`run_start`, `tool_call_start` … `done`), and requests to models.

A run that goes on at another server begins there with `RunTakenOver`, and with the ends of calls that were open and
cannot go on; of its events before that one knows nothing.

A `tool_call_start` says of which round it is (`round_index`). Of the requests of an agent of another framework
observers are told what the framework says; requests of agents in its tools are among them.
"""

Observer = Callable[[ObservedRun, Observation], None]

STOPPED = frozenset({"CancelledError", "GeneratorExit"})
"""The errors of a `ModelAnswered` that are no failure: the run was stopped, or let go of the answer."""


@dataclass(frozen=True, slots=True)
class RunObservers:
    """The observers of one run; `keeps_answers`: they are told the whole answer of a model once it has ended."""

    run: ObservedRun
    observers: Sequence[Observer] = ()
    keeps_answers: bool = False

    def tell(self, what: Observation) -> None:
        """Tell each of them; one that fails costs the others and the run nothing."""
        for observer in self.observers:
            try:
                observer(self.run, what)
            except Exception as error:  # noqa: BLE001 - foreign code: an observer may raise anything
                _log.warning("observer_failed", run_id=self.run.run_id, what=type(what).__name__, exc_info=error)

    def watch(self, model: ChatModel) -> ChatModel:
        """Return the model, with its requests told of."""
        return _WatchedModel(model, self) if self.observers else model


class ObservedRequest:
    """A request to a model while it is answered; `tell` is given `ModelAsked` at once, and `ModelAnswered` at the end.

    Set `finish_reason` and `usage` before the end. Used as a context it ends there, with the error that is raised.
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
        """The time to the first piece of the answer, None until it has come."""
        tell(ModelAsked(model, messages, tools, self._number, request))

    def receive(self) -> None:
        """Note that a piece of the answer has come: the first one counts."""
        if self.first_seconds is None:
            self.first_seconds = time.monotonic() - self._began

    def end(self, error: BaseException | None = None) -> None:
        """End the request, well or by `error`; a second end is ignored."""
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
                    # By its class, text first: there is one of it for each token.
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
