"""Authentication: a function that knows callers by their request, before every route but `/health` and `/ready`."""

import hmac
from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from callboard._http.errors import answer_error
from callboard._http.principal import SCOPE_KEY, Principal, bind_query
from callboard._named_keys import KeysFile
from callboard._runs import Links
from callboard._settings import Settings
from callboard.errors import RequestError, Unauthorized, UserRefused

RESULT_PATH = "/v1/tool-calls/"
OPEN_PATHS = frozenset({"/health", "/ready"})
METRICS_PATH = "/metrics"

THE_KEY = "api key"
"""The name of the one key that has none: no other can have it."""

POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed that may not be opened (RFC 6455, 7.4.1)."""


Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]
"""A function that returns who asks, None for somebody who may not; it raises `Unauthorized` to say why."""


def api_key(key: str) -> "ApiKey":
    """Return the authentication of everybody who sends `Authorization: Bearer <key>`."""
    return ApiKey(key)


class ApiKey:
    """Authentication by one key, by those of a file, or by both.

    Raises `Unauthorized` where the key that is sent is missing or wrong.
    """

    def __init__(self, key: str | None, named: KeysFile | None = None) -> None:
        self._key = key.encode() if key else None
        self._named = named
        self.secrets: tuple[str, ...] = (key,) if key else ()
        """The texts that no log, event or row may hold."""

    def find_name(self, connection: HTTPConnection) -> str | None:
        """Return the name of the key that a request brings; None where it brings none, or a wrong one."""
        scheme, _, given = _read_authorization(connection)
        key = given.strip() if scheme.lower() == "bearer" else ""
        # Constant time: the answer must not tell how much of the key was right.
        if key and self._key and hmac.compare_digest(key.encode(), self._key):
            return THE_KEY
        return self._named.find_name(key) if key and self._named else None

    def find_secret(self, name: str) -> bytes | None:
        """Return what to sign with for who has the key of that name; another once the key is another, None without."""
        if name == THE_KEY:
            return self._key
        digest = self._named.find_digest(name) if self._named else None
        return digest.encode() if digest else None

    async def __call__(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of everybody who has a key, by the key's name."""
        if name := self.find_name(connection):
            return Principal(name)
        _, _, given = _read_authorization(connection)
        problem = "is wrong" if given else "is missing: send Authorization: Bearer <key>"
        hint = "it is the server's CALLBOARD_API_KEY, which `callboard key` prints, and the pipe's valve of that name"
        if self._named and not self._key:
            hint = "`callboard key --add NAME` makes one, and the pipe has its own in the valve CALLBOARD_API_KEY"
        raise Unauthorized(f"The API key {problem}; {hint}.")


def authenticate_by(settings: Settings) -> Authenticate | None:
    """Return the authentication by the keys of the settings, None where they have none.

    Raises `SettingsError` where the file of keys cannot be used.
    """
    key = settings.api_key.get_secret_value() if settings.api_key else None
    if settings.api_keys_file is None:
        return api_key(key) if key else None
    return ApiKey(key, KeysFile(settings.api_keys_file))


def _read_authorization(connection: HTTPConnection) -> tuple[str, str, str]:
    """Return the scheme of the `Authorization` header, what parts it from the key, and the key."""
    return connection.headers.get("authorization", "").partition(" ")


class Authentication:
    """Middleware that answers 401 to whom `authenticate` does not know; links of ours are signed, and pass.

    Who has `metrics_key` may read `/metrics` as well, and nothing else.
    """

    def __init__(
        self, app: ASGIApp, authenticate: Authenticate, links: Links, metrics_key: ApiKey | None = None
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._links = links
        self._metrics_key = metrics_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        path = read_route_path(scope)
        may_pass = path in OPEN_PATHS or is_signed(connection, self._links)
        if may_pass or (path == METRICS_PATH and self._metrics_key and self._metrics_key.find_name(connection)):
            await self._app(scope, receive, send)
            return
        refusal: RequestError = Unauthorized("You may not use this server.")
        try:
            principal = await self._authenticate(connection)
            if principal is not None:
                scope = bind_query(scope, path, principal)
        except (Unauthorized, UserRefused) as error:
            principal = None
            refusal = error
        if principal is not None:
            # What is logged meanwhile, by a run that begins here too, says whose key it was.
            with bound_contextvars(key=principal.name):
                await self._app({**scope, SCOPE_KEY: principal}, receive, send)
        elif scope["type"] == "websocket":
            # It is closed before it is accepted: the handshake is answered with 403.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            await answer_error(refusal)(scope, receive, send)


def is_signed(request: HTTPConnection, links: Links) -> bool:
    """Return whether the request is one of this server's own links to a result."""
    path = read_route_path(request.scope)
    query = request.query_params
    if request.scope["type"] != "http" or not path.startswith(RESULT_PATH) or "signature" not in query:
        return False
    tool_call_id = path.removeprefix(RESULT_PATH)
    return links.allow(query.get("chat_id", ""), tool_call_id, query.get("expires", ""), query["signature"])


def read_route_path(scope: Scope) -> str:
    """Return the path by which routes go: decoded once, by the server, without the prefix of an application around.

    `request.url` would not do: it is made from the Host header too.
    """
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
