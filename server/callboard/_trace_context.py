"""The trace of the current task, in OpenTelemetry's context: read from the request, and inherited by tasks.

The headers `traceparent` and `tracestate` are read, but not `baggage`, in which a client may send private data.

Imports nothing of Callboard.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def current_trace_id() -> str:
    """Return the id of the current task's trace in hex; empty if it has none."""
    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def headers_of() -> dict[str, str]:
    """Return the trace headers of the current task, none without a trace."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return headers


def join(headers: Mapping[str, str]) -> None:
    """Put this task, and tasks that it starts, into the trace of the headers, if they have one."""
    otel.attach(_read(headers))


@contextmanager
def within(headers: Mapping[str, str]) -> Iterator[None]:
    """Put this task, and tasks that it starts, into the trace of the headers until the block ends."""
    token = otel.attach(_read(headers))
    try:
        yield
    finally:
        otel.detach(token)


def _read(headers: Mapping[str, str]) -> Context:
    # An application around this one may have begun a span, which comes first.
    return otel.get_current() if current_trace_id() else _PROPAGATOR.extract(headers)
