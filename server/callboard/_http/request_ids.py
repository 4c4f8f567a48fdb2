"""Ids of requests: each has one, in its answer and in every line of log of it and of the run that it begins.

The trace that a request belongs to is told in the same way, by those who ask and have one: `traceparent`.
"""

import re
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard._trace_context import read, within

HEADER = "X-Request-Id"

_WELL_FORMED = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""What proxies and clients make: UUIDs, hex, base64, paths. None of it ends a line of log or begins another value."""


class RequestIds:
    """Middleware that gives each request an id: its own where it brings a well-formed one, else a new one.

    What is done for a request is done within its trace.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; whatever is begun for it, a run too, logs with its id."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = read_request_id(headers)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id), within(read(_find_trace(headers))):
            await self._app(scope, receive, send_with_id)


def read_request_id(headers: Headers) -> str:
    """Return the id that a request brings, a new one where it brings none, two, or one that is not well-formed."""
    given = headers.getlist(HEADER)
    if len(given) == 1 and _WELL_FORMED.fullmatch(given[0]):
        return given[0]
    return uuid4().hex


def _find_trace(headers: Headers) -> dict[str, str]:
    """Return the headers of the trace that a request names; of two it is in neither."""
    parents = headers.getlist("traceparent")
    if len(parents) != 1:
        return {}
    return {"traceparent": parents[0], "tracestate": ",".join(headers.getlist("tracestate"))}
