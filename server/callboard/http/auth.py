"""Bearer auth in front of every route but `/health`."""

import hmac

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.errors import Unauthorized
from callboard.http.errors import answer
from callboard.runs import Links

RESULT_PATH = "/v1/tool-calls/"
OPEN_PATHS = frozenset({"/health"})


class BearerAuth:
    """Answers 401 unless the request carries the key or is a signed link; lets everything through without a key."""

    def __init__(self, app: ASGIApp, api_key: str | None, links: Links) -> None:
        self._app = app
        self._links = links
        self._api_key = api_key.encode() if api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http" or self._api_key is None or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        # Constant time: the answer must not tell how much of the key was right.
        known = scheme.lower() == "bearer" and hmac.compare_digest(key.strip().encode(), self._api_key)
        if known or is_signed(HTTPConnection(scope), self._links):
            await self._app(scope, receive, send)
            return
        problem = "is wrong" if key else "is missing: send Authorization: Bearer <key>"
        hint = "it is the server's CALLBOARD_API_KEY, which `callboard key` prints, and the pipe's valve of that name"
        await answer(Unauthorized(f"The API key {problem}; {hint}."))(scope, receive, send)


def is_signed(request: HTTPConnection, links: Links) -> bool:
    """Whether the request is one of this server's own links to a result."""
    # The server has decoded the path, once, and routes go by it; `request.url` is made from the Host header too.
    path, query = request.scope["path"], request.query_params
    if not path.startswith(RESULT_PATH) or "signature" not in query:
        return False
    tool_call_id = path.removeprefix(RESULT_PATH)
    return links.allow(query.get("chat_id", ""), tool_call_id, query.get("expires", ""), query["signature"])
