"""The export of spans in `callboard serve`, with OpenTelemetry's SDK and its environment variables (`OTEL_…`).

Another application sets up the SDK itself, because the SDK has one configuration for the whole process.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote

import structlog
from opentelemetry import trace

from callboard._tracing.conventions import SCOPE
from callboard._version import __version__
from callboard.errors import SettingsError
from callboard.extras import how_to_install, is_installed

PREFIX = "OTEL_"
PROTOCOL = "http/protobuf"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

LAST_SECONDS = 5.0
"""Maximum time to send the last spans."""

_log = structlog.get_logger(__name__)


class Export:
    """Exports Callboard's spans of this process, without those of other libraries, which may quote conversations."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        class OwnSpans(BatchSpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                if span.instrumentation_scope and span.instrumentation_scope.name == SCOPE:
                    super().on_end(span)

        own = Resource.create({"service.name": "callboard", "service.version": __version__})
        # The environment's attributes come first; `Resource.create` would replace them.
        self._provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
        self._provider.add_span_processor(OwnSpans(OTLPSpanExporter()))
        trace.set_tracer_provider(self._provider)

    async def end(self) -> None:
        """Send the last spans, for at most `LAST_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                # In a thread, because it blocks.
                await asyncio.to_thread(self._provider.shutdown)


def begin_export(variables: Mapping[str, str]) -> Export | None:
    """Start to export the spans of this process if the variables name a receiver; otherwise return None.

    Raises `SettingsError` for an exporter or a protocol that is not supported.
    """
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    is_disabled = variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none"
    if is_disabled or not any(variables.get(name) for name in _ENDPOINTS):
        return None
    if exporter != "otlp":
        raise SettingsError(f"OTEL_TRACES_EXPORTER: {exporter!r} is not supported: set otlp or none")
    protocol = next((name for name in _PROTOCOLS if variables.get(name)), None)
    if protocol and variables[protocol].strip() != PROTOCOL:
        raise SettingsError(f"{protocol}: {variables[protocol]!r} is not supported: set {PROTOCOL}")
    if not is_installed("otel"):
        _log.warning("traces_not_exported", hint=f"OTEL_… asks for traces: {how_to_install('otel')}")
        return None
    # The SDK reads only the environment, but the variables may be in `.env`.
    for name, value in variables.items():
        if name.startswith(PREFIX):
            os.environ.setdefault(name, value)
    _log.info("traces_exported")
    return Export()


def find_secrets(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of the headers that are sent with traces, because they are keys of the receiver."""
    pairs = [pair.partition("=")[2].strip() for name in _HEADERS for pair in variables.get(name, "").split(",")]
    values = [form for value in pairs for form in (value, unquote(value))]
    # In `Bearer KEY`, the key alone is a secret too.
    return tuple(dict.fromkeys(part for value in values for part in (value, value.partition(" ")[2]) if part))
