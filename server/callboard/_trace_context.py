"""The trace that a task belongs to: taken from the request, carried by tasks, passed on to models and services.

OpenTelemetry's own context carries it, so that whatever else is instrumented in this process joins in: a tool finds its
call as the current span. Without its SDK no span is made here, and what a request brought is passed on as it came. Of
the headers that there are for it `traceparent` and `tracestate` are read and sent, and no baggage: what a client put
into that is nobody else's matter.

Below everything; imports nothing of Callboard.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_OF_RUN = otel.create_key("callboard run")


@dataclass(slots=True)
class RunTrace:
    """The spans of a run that is at work: of its open requests to models, and of its open calls.

    A request is found by the span that it was begun in, the run's or a call's, a call by its id.
    """

    asking: dict[int, Context] = field(default_factory=dict)
    calls: dict[str, Context] = field(default_factory=dict)


class _Request(Protocol):
    """A request of httpx, or of the library that MCP's client speaks with."""

    @property
    def headers(self) -> MutableMapping[str, str]: ...


def read(headers: Mapping[str, str]) -> Context:
    """Return the current context with the trace that headers name; as it is where they name none."""
    # Whatever stands in front of this application may have begun a span of its own.
    return otel.get_current() if current_trace_id() else _PROPAGATOR.extract(headers)


def current_trace_id() -> str:
    """Return the id of the trace that the current task belongs to, in hex; empty where it belongs to none."""
    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def with_run(context: Context, run: RunTrace) -> Context:
    """Return a context in which the run is found."""
    return otel.set_value(_OF_RUN, run, context)


def join(headers: Mapping[str, str]) -> None:
    """Have this task, until it ends, and those that it begins work within the trace that headers name, if they do."""
    otel.attach(read(headers))


@contextmanager
def within(context: Context | None) -> Iterator[None]:
    """Have this task, and those that it begins, work within a context until the block ends; None: as it is."""
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
    """Have this task work for a call of its run, where that is traced, until the block ends."""
    run = _find_run()
    with within(run.calls.get(call_id) if run else None):
        yield


def current_span_id() -> int:
    """Return the id of the span that the current task works in; 0 where it works in none."""
    return trace.get_current_span().get_span_context().span_id


def is_within(run: RunTrace) -> bool:
    """Return whether the current task works for this run."""
    return _find_run() is run


def is_in_run() -> bool:
    """Return whether the current task works for a run."""
    return _find_run() is not None


def headers_for_model() -> dict[str, str]:
    """Return the headers that say of which trace a request to a model is; none where there is none."""
    run = _find_run()
    return headers_of(run.asking.get(current_span_id()) if run else None)


def headers_of(context: Context | None = None) -> dict[str, str]:
    """Return the headers that name the trace of a context, of the current one where none is given."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, context)
    return headers


def link_to(traceparent: str) -> Sequence[trace.Link]:
    """Return a link to the span that a header names; none where it names none."""
    found = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent}, Context()))
    return [trace.Link(found.get_span_context())] if found.get_span_context().is_valid else []


async def pass_on_to_model(request: _Request) -> None:
    """Say in a request to a model of which trace it is: an event hook of its client."""
    request.headers.update(headers_for_model())


async def pass_on(request: _Request) -> None:
    """Say in a request to a service of which trace it is: an event hook of its client."""
    request.headers.update(headers_of())


def _find_run() -> RunTrace | None:
    run = otel.get_value(_OF_RUN)
    return run if isinstance(run, RunTrace) else None
