"""The trace of the current task: read from the request, carried by tasks, sent to models and services.

OpenTelemetry's context carries it, so that other instrumented libraries of this process join the trace: a tool finds
its call as the current span. Without the SDK no spans are made, and the trace of the request is passed on. The headers
`traceparent` and `tracestate` are read and sent, but not `baggage`, in which a client may send private data.

Imports nothing of Callboard.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = [
    "RunTrace",
    "current_span_id",
    "headers_for_model",
    "headers_of",
    "is_in_run",
    "is_within",
    "link_to",
    "pass_on",
    "with_run",
]

_PROPAGATOR = TraceContextTextMapPropagator()
_RUN_KEY = otel.create_key("callboard run")


@dataclass(slots=True)
class RunTrace:
    """The open requests to models of a run, by the id of their parent span, and its open calls, by call id."""

    asking: dict[int, Context] = field(default_factory=dict)
    calls: dict[str, Context] = field(default_factory=dict)


class _Request(Protocol):
    """A request of httpx, or of the HTTP library of the MCP client."""

    @property
    def headers(self) -> MutableMapping[str, str]: ...


def read(headers: Mapping[str, str]) -> Context:
    """Return the current context with the trace of the headers, if they have one."""
    # An application around this one may have begun a span, which comes first.
    return otel.get_current() if current_trace_id() else _PROPAGATOR.extract(headers)


def current_trace_id() -> str:
    """Return the id of the current task's trace in hex; empty if it has none."""
    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def with_run(context: Context, run: RunTrace) -> Context:
    """Return a context that contains the run."""
    return otel.set_value(_RUN_KEY, run, context)


def join(headers: Mapping[str, str]) -> None:
    """Put this task, and tasks that it starts, into the trace of the headers, if they have one."""
    otel.attach(read(headers))


@contextmanager
def within(context: Context | None) -> Iterator[None]:
    """Put this task, and tasks that it starts, into a context until the block ends; None changes nothing."""
    if context is None:
        yield
        return
    token = otel.attach(context)
    try:
        yield
    finally:
        otel.detach(token)


@contextmanager
def within_call(call_id: str) -> Iterator[None]:
    """Make the span of a call the current span until the block ends, if the run is traced."""
    run = _find_run()
    with within(run.calls.get(call_id) if run else None):
        yield


def current_span_id() -> int:
    """Return the id of the current span; 0 if there is none."""
    return trace.get_current_span().get_span_context().span_id


def is_within(run: RunTrace) -> bool:
    """Return whether the current task belongs to this run."""
    return _find_run() is run


def is_in_run() -> bool:
    """Return whether the current task belongs to a run."""
    return _find_run() is not None


def headers_for_model() -> dict[str, str]:
    """Return the trace headers for a request to a model; none without a trace."""
    run = _find_run()
    return headers_of(run.asking.get(current_span_id()) if run else None)


def headers_of(context: Context | None = None) -> dict[str, str]:
    """Return the trace headers of a context, by default of the current one."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, context)
    return headers


def link_to(traceparent: str) -> Sequence[trace.Link]:
    """Return a link to the span of a `traceparent`; none if it names no span."""
    found = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent}, Context()))
    return [trace.Link(found.get_span_context())] if found.get_span_context().is_valid else []


async def pass_on_to_model(request: _Request) -> None:
    """Add the trace headers to a request to a model; an event hook of the client."""
    request.headers.update(headers_for_model())


async def pass_on(request: _Request) -> None:
    """Add the trace headers to a request to a service; an event hook of the client."""
    request.headers.update(headers_of())


def _find_run() -> RunTrace | None:
    run = otel.get_value(_RUN_KEY)
    return run if isinstance(run, RunTrace) else None
