"""Gives each request an id, which its response and all log lines of the request and of the run it starts carry.

Also continues the client's trace, if the request has a `traceparent` header.
"""

import re
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard.trace_context import read, within

HEADER = "X-Request-Id"

_WELL_FORMED = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids as proxies and clients make them: UUIDs, hex, base64, paths. No character can end or forge a log line."""


class RequestIds:
    """Middleware that runs each request with its id in the log's context and within its trace."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with its id in the log and in the response."""
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
    """Return the id in the request's header; a new id if there is none, or several, or one that is not well-formed."""
    given = headers.getlist(HEADER)
    if len(given) == 1 and _WELL_FORMED.fullmatch(given[0]):
        return given[0]
    return uuid4().hex


def _find_trace(headers: Headers) -> dict[str, str]:
    """Return the trace headers of the request; empty if there are several traces."""
    parents = headers.getlist("traceparent")
    if len(parents) != 1:
        return {}
    return {"traceparent": parents[0], "tracestate": ",".join(headers.getlist("tracestate"))}
