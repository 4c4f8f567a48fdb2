"""The export of spans in `callboard serve`, with OpenTelemetry's SDK and its environment variables (`OTEL_…`).

Another application sets up the SDK itself, because the SDK has one configuration for the whole process.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING
from urllib.parse import unquote

import structlog
from opentelemetry import trace

from callboard import __version__
from callboard.errors import SettingsError
from callboard.extras import how_to_install, is_installed
from callboard.redaction import Redaction

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

PREFIX = "OTEL_"
EXPORTERS = "opentelemetry_traces_exporter"
"""The group of entry points that exporters are registered in."""
OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""The exporters by protocol."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

LAST_SECONDS = 5.0
"""Maximum time to send the last spans."""

_log = structlog.get_logger(__name__)


class Export:
    """Exports the spans of this process, without secrets."""

    def __init__(self, exporters: Sequence["SpanExporter"], redaction: Redaction, *, has_contents: bool) -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from callboard._tracing.clean_export import CleanExporter

        own = Resource.create({"service.name": "callboard", "service.version": __version__})
        # The environment's attributes come first; `Resource.create` would replace them.
        self._provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
        for exporter in exporters:
            clean = CleanExporter(exporter, redaction, has_contents=has_contents)
            self._provider.add_span_processor(BatchSpanProcessor(clean))
        trace.set_tracer_provider(self._provider)

    async def end(self) -> None:
        """Send the last spans, for at most `LAST_SECONDS`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                # In a thread, because it blocks.
                await asyncio.to_thread(self._provider.shutdown)


def begin_export(variables: Mapping[str, str], redaction: Redaction, *, has_contents: bool) -> Export | None:
    """Start to export the spans of this process if the variables name a receiver; otherwise return None.

    `redaction` has the secrets to remove; with `has_contents`, conversations are exported. Raises `SettingsError` for
    an unknown exporter.
    """
    names = find_exporters(variables)
    if not names:
        return None
    if not is_installed("otel"):
        _log.warning("traces_not_exported", hint=f"OTEL_… asks for traces: {how_to_install('otel')}")
        return None
    # The SDK reads only the environment, but the variables may be in `.env`.
    for name, value in variables.items():
        if name.startswith(PREFIX):
            os.environ.setdefault(name, value)
    exporters = [_make_exporter(name) for name in names]
    _log.info("traces_exported", exporters=names)
    return Export(exporters, redaction, has_contents=has_contents)


def _make_exporter(name: str) -> "SpanExporter":
    found = tuple(entry_points(group=EXPORTERS, name=name))
    if not found and name == OTLP["grpc"]:
        raise SettingsError("OTLP over grpc needs a library: pip install opentelemetry-exporter-otlp-proto-grpc")
    if not found:
        raise SettingsError(f"OTEL_TRACES_EXPORTER: there is no exporter {name!r}: install it, or set otlp or none")
    exporter: SpanExporter = found[0].load()()
    return exporter


def find_exporters(variables: Mapping[str, str]) -> list[str]:
    """Return the names of the exporters in the variables; OTLP if they only name its endpoint.

    Raises `SettingsError` for an OTLP protocol that is not supported.
    """
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    given = variables.get("OTEL_TRACES_EXPORTER", "")
    if not given and any(variables.get(name) for name in _ENDPOINTS):
        given = "otlp"
    names = [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]
    return [_find_otlp(variables) if name == "otlp" else name for name in names]


def _find_otlp(variables: Mapping[str, str]) -> str:
    variable = next((name for name in _PROTOCOLS if variables.get(name)), None)
    protocol = variables[variable].strip() if variable else "http/protobuf"
    if protocol not in OTLP:
        raise SettingsError(f"{variable}: {protocol!r} is not supported: set http/protobuf or grpc")
    return OTLP[protocol]


def find_secrets(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of the headers that are sent with traces, because they are keys of the receiver."""
    pairs = [pair.partition("=")[2].strip() for name in _HEADERS for pair in variables.get(name, "").split(",")]
    values = [form for value in pairs for form in (value, unquote(value))]
    # In `Bearer KEY`, the key alone is a secret too.
    return tuple(dict.fromkeys(part for value in values for part in (value, value.partition(" ")[2]) if part))
