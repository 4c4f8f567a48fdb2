"""Checks each request before its route: its form, and its caller, except for `/health` and `/ready`."""

import hmac
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from callboard._named_keys import KeysFile
from callboard.errors import BodyRefused, RequestError, Unauthorized, UserRefused
from callboard.http.errors import error_response
from callboard.http.principal import SCOPE_KEY, Principal, bind_query
from callboard.runs.links import Links
from callboard.settings import Settings

RESULT_PATH = "/v1/tool-calls/"
OPEN_PATHS = frozenset({"/health", "/ready"})
METRICS_PATH = "/metrics"
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
JSON = "application/json"

UNNAMED_KEY = "api key"
"""The caller name of `CALLBOARD_API_KEY`, which has no name. A named key cannot have it because it contains a space."""

POLICY_VIOLATION = 1008
"""The code for closing a WebSocket that the caller may not open (RFC 6455, 7.4.1)."""


Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]
"""A function that returns the caller of a request, or None to refuse it. It may raise `Unauthorized` with a reason."""


def api_key(key: str) -> "ApiKey":
    """Return an `authenticate` function that accepts requests with `Authorization: Bearer <key>`."""
    return ApiKey(key)


class ApiKey:
    """Accepts a single key, the named keys of a file, or both.

    A call raises `Unauthorized` if the request's key is missing or wrong.
    """

    def __init__(self, key: str | None, named: KeysFile | None = None) -> None:
        self._key = key.encode() if key else None
        self._named = named
        self.secrets: tuple[str, ...] = (key,) if key else ()
        """Secrets to redact from logs, events and stored rows."""

    def find_name(self, connection: HTTPConnection) -> str | None:
        """Return the name of the request's key; None if the key is missing or wrong."""
        scheme, _, given = _read_authorization(connection)
        key = given.strip() if scheme.lower() == "bearer" else ""
        # Compared in constant time: otherwise the response time reveals how many characters were right.
        if key and self._key and hmac.compare_digest(key.encode(), self._key):
            return UNNAMED_KEY
        return self._named.find_name(key) if key and self._named else None

    def find_secret(self, name: str) -> bytes | None:
        """Return the signing secret of the key with that name, None if there is no such key.

        It is derived from the key, so signatures become invalid when the key is replaced.
        """
        if name == UNNAMED_KEY:
            return self._key
        digest = self._named.find_digest(name) if self._named else None
        return digest.encode() if digest else None

    async def __call__(self, connection: HTTPConnection) -> Principal | None:
        """Return a principal with the name of the request's key."""
        if name := self.find_name(connection):
            return Principal(name)
        _, _, given = _read_authorization(connection)
        problem = "is wrong" if given else "is missing: send Authorization: Bearer <key>"
        hint = "it is the server's CALLBOARD_API_KEY, which `callboard key` prints, and the pipe's valve of that name"
        if self._named and not self._key:
            hint = "`callboard key --add NAME` makes one, and the pipe has its own in the valve CALLBOARD_API_KEY"
        raise Unauthorized(f"The API key {problem}; {hint}.")


def authenticate_by(settings: Settings) -> Authenticate | None:
    """Return an `authenticate` function for the keys in the settings, None if no key is set.

    Raises `SettingsError` if the file of keys cannot be used.
    """
    key = settings.api_key.get_secret_value() if settings.api_key else None
    if settings.api_keys_file is None:
        return api_key(key) if key else None
    return ApiKey(key, KeysFile(settings.api_keys_file))


def _read_authorization(connection: HTTPConnection) -> tuple[str, str, str]:
    """Return the scheme of the `Authorization` header, the separator, and the key."""
    return connection.headers.get("authorization", "").partition(" ")


class Authentication:
    """Middleware that refuses malformed requests (415, 422), and callers whom `authenticate` refuses (401, 403).

    If `authenticate` is None, every caller passes. Links that this server has signed pass without a key. `metrics_key`
    grants access to `/metrics` alone.
    """

    def __init__(
        self, app: ASGIApp, authenticate: Authenticate | None, links: Links, metrics_key: ApiKey | None = None
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._links = links
        self._metrics_key = metrics_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a well-formed request whose caller may use the server, and refuse all others."""
        if scope["type"] == "http" and (fault := _find_fault(scope)):
            await error_response(fault)(scope, receive, send)
        elif scope["type"] == "lifespan" or self._authenticate is None:
            await self._app(scope, receive, send)
        else:
            await self._identify(self._authenticate, scope, receive, send)

    async def _identify(self, authenticate: Authenticate, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        path = read_route_path(scope)
        may_pass = path in OPEN_PATHS or has_valid_signature(connection, self._links)
        if may_pass or (path == METRICS_PATH and self._metrics_key and self._metrics_key.find_name(connection)):
            await self._app(scope, receive, send)
            return
        refusal: RequestError = Unauthorized("You may not use this server.")
        try:
            principal = await authenticate(connection)
            if principal is not None:
                scope = bind_query(scope, path, principal)
        except (Unauthorized, UserRefused) as error:
            principal = None
            refusal = error
        if principal is not None:
            # Log lines of this request, and of a run that it starts, carry the name of the key.
            with bound_contextvars(key=principal.name):
                await self._app({**scope, SCOPE_KEY: principal}, receive, send)
        elif scope["type"] == "websocket":
            # Closing before accepting makes the server answer the handshake with 403.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            await error_response(refusal)(scope, receive, send)


def _find_fault(scope: Scope) -> RequestError | None:
    """Return the error of a request with a NUL in its address, or with a body that is not declared as JSON.

    No stored id contains a NUL. SQLite would search and find nothing; PostgreSQL reports an error. Web pages can send
    bodies of other types (forms, beacons) to any origin without a CORS preflight, but not JSON.
    """
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return RequestError("the address contains a NUL character (%00), which no id has: remove it")
    if scope["method"] in METHODS_WITHOUT_BODY:
        return None
    headers = Headers(scope=scope)
    types = {value.partition(";")[0].strip().lower() for value in headers.getlist("content-type")}
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    if (types or has_body) and types != {JSON}:
        return BodyRefused(f"the request's body must be declared as JSON: send Content-Type: {JSON}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        return BodyRefused("this server does not read compressed bodies: send the request without Content-Encoding")
    return None


def has_valid_signature(request: HTTPConnection, links: Links) -> bool:
    """Return whether the request is a link to a result with a valid signature of this server."""
    path = read_route_path(request.scope)
    query = request.query_params
    if request.scope["type"] != "http" or not path.startswith(RESULT_PATH) or "signature" not in query:
        return False
    tool_call_id = path.removeprefix(RESULT_PATH)
    return links.allow(query.get("chat_id", ""), tool_call_id, query.get("expires", ""), query["signature"])


def read_route_path(scope: Scope) -> str:
    """Return the path that routes match: percent-decoded, without the prefix at which the application is mounted.

    `request.url` is not used because it also depends on the Host header, which the client chooses.
    """
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
