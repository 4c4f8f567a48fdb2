"""A receiver of traces: OTLP over real HTTP, as a collector takes it, decoded by OpenTelemetry's own protobuf.

with OtlpReceiver() as receiver:
    … OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url …
    spans = receiver.spans
"""

import gzip
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

KINDS = {trace_pb2.Span.SPAN_KIND_INTERNAL: "internal", trace_pb2.Span.SPAN_KIND_CLIENT: "client"}


@dataclass(frozen=True)
class Span:
    """A span as it was received; ids are in hex, `parent_id` is empty for the first of a trace."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    is_error: bool
    status_message: str
    began: int
    ended: int
    scope: str
    schema_url: str
    resource: Mapping[str, Any] = field(repr=False)

    @property
    def traceparent(self) -> str:
        """The header that says of a request that it is of this span."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class OtlpReceiver:
    """The receiver; `bodies` are what was sent, `headers` those of each request."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_packed = self.headers.get("Content-Encoding") == "gzip"
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.bodies.append(gzip.decompress(body) if is_packed else body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_request(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._serving = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()

    @property
    def spans(self) -> Sequence[Span]:
        """All spans so far, in the order in which they began."""
        found = []
        for body in self.bodies:
            for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = {one.key: _read(one.value) for one in of_resource.resource.attributes}
                for of_scope in of_resource.scope_spans:
                    found += [_read_span(span, of_scope, resource) for span in of_scope.spans]
        return sorted(found, key=lambda span: span.began)


def _read_span(span: trace_pb2.Span, of_scope: trace_pb2.ScopeSpans, resource: Mapping[str, Any]) -> Span:
    return Span(
        span.name,
        KINDS.get(span.kind, str(span.kind)),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        {one.key: _read(one.value) for one in span.attributes},
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        span.status.message,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        of_scope.scope.name,
        of_scope.schema_url,
        resource,
    )


def _read(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_read(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
