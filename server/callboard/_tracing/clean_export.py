"""Removes secrets and messages of exceptions from the spans of other libraries before their export.

Other libraries record exceptions unchanged, and their messages may quote a conversation. They are exported only if the
content of traces is on (`CALLBOARD_TRACE_CONTENT`). This module needs OpenTelemetry's SDK.
"""

from collections.abc import Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Status
from opentelemetry.util.types import Attributes, AttributeValue

from callboard._tracing.conventions import SCOPE
from callboard.redaction import Redaction

_MESSAGES = frozenset({"exception.message", "exception.stacktrace"})


class CleanExporter(SpanExporter):
    """Passes spans to another exporter, those of other libraries cleaned. It runs in a thread."""

    def __init__(self, exporter: SpanExporter, redaction: Redaction, *, has_contents: bool) -> None:
        self._exporter = exporter
        self._redaction = redaction
        self._has_contents = has_contents

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export the spans."""
        return self._exporter.export([self._clean(span) for span in spans])

    def shutdown(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send the spans that the other exporter buffers."""
        return self._exporter.force_flush(timeout_millis)

    def _clean(self, span: ReadableSpan) -> ReadableSpan:
        scope = span.instrumentation_scope
        if scope is not None and scope.name == SCOPE:
            return span
        message = span.status.description if self._has_contents else None
        return ReadableSpan(
            name=self._redaction(span.name),
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=self._clean_attributes(span.attributes),
            events=[self._clean_event(event) for event in span.events],
            links=span.links,
            kind=span.kind,
            status=Status(span.status.status_code, self._redaction(message) if message else None),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=scope,
        )

    def _clean_event(self, event: Event) -> Event:
        left_out = frozenset() if self._has_contents else _MESSAGES
        kept = {name: value for name, value in (event.attributes or {}).items() if name not in left_out}
        return Event(event.name, self._clean_attributes(kept), event.timestamp)

    def _clean_attributes(self, attributes: Attributes) -> dict[str, AttributeValue]:
        return {name: self._redaction.value(value) for name, value in (attributes or {}).items()}
