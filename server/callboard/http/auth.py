"""Who sends a request: its key, the caller that the key stands for, and the user whom the caller may act for.

A caller with a `user_id` may act for that user only. A request that names no user counts as a request of this user. A
request that names another user is refused rather than answered for the caller's user: otherwise a service that sends
Ada's question with Bob's token would store her words in his chats without noticing.

Each request is checked before its route: its form, and its caller, except for `OPEN_PATHS`.
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from callboard._named_keys import KeysFile
from callboard.calls.sign_ins import CALLBACK_PATH
from callboard.errors import BodyRefused, RequestError, Unauthorized, UserRefused
from callboard.http.errors import error_response
from callboard.openwebui.signed_users import HEADER, read_signed_user
from callboard.runs.links import Links
from callboard.settings import Settings
from callboard_protocol import User

SCOPE_KEY = "callboard.principal"

BOUND_PATHS = ("/v1/", "/skills/")
"""Prefixes of the routes whose `user_id` in the query names the user of the request."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. Routes read it as `request.scope["callboard.principal"]`.

    `name`: the caller's name in logs. `user_id`: the only user for whom the caller may ask; None for a
    service that asks for many users and is trusted to name them. `roles`: the first one is the `role` of that user
    (`user` if there is none), the others are the user's `groups`. Tools and `CALLBOARD_AGENT_ACCESS` read them; role,
    groups, name and email in the request are then ignored. Raises `ValueError` for an invalid `user_id`. An empty one
    is invalid because chats without a user are visible to every caller.
    """

    name: str
    user_id: str | None = None
    roles: Sequence[str] = ()
    user: User | None = field(init=False, repr=False, default=None)
    """The user that tools see; None without `user_id`."""

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):
            raise TypeError(f"Principal({self.name!r}) needs its roles as a sequence: roles=({self.roles!r},).")
        object.__setattr__(self, "roles", tuple(self.roles))
        if self.user_id is None:
            return
        role = self.roles[0] if self.roles else "user"
        try:
            user = User(id=self.user_id, name=self.name, role=role, groups=tuple(self.roles[1:]))
        except ValidationError as error:
            raise ValueError(
                f"Principal({self.name!r}) cannot have user_id={self.user_id!r}: give 1 to 255 printable characters, "
                "or return None from authenticate for a caller who may not use the server."
            ) from error
        object.__setattr__(self, "user", user)


def get_principal(connection: HTTPConnection) -> Principal | None:
    """Return the caller of the request; None if the server has no authentication."""
    principal = connection.scope.get(SCOPE_KEY)
    return principal if isinstance(principal, Principal) else None


def get_caller_name(connection: HTTPConnection) -> str | None:
    """Return the caller's name; None if the server has no authentication."""
    principal = get_principal(connection)
    return principal.name if principal else None


def find_bound_user(connection: HTTPConnection, *named: str | None) -> User | None:
    """Return the user to whom the caller is bound, if any; `named` are the users that the request names.

    Raises `UserRefused` if the request names another user.
    """
    principal = get_principal(connection)
    if principal is None or principal.user is None:
        return None
    _refuse_others(principal.user, named)
    return principal.user


def bind_query(scope: Scope, path: str, principal: Principal) -> Scope:
    """Return the scope with the caller's `user_id` in the query, if the caller is bound to a user.

    `path` is the path of the route. Raises `UserRefused` if the query names another user.
    """
    if principal.user is None or not path.startswith(BOUND_PATHS):
        return scope
    given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    _refuse_others(principal.user, [value for name, value in given if name == "user_id"])
    bound = [*(pair for pair in given if pair[0] != "user_id"), ("user_id", principal.user.id)]
    return {**scope, "query_string": urlencode(bound).encode()}


def _refuse_others(user: User, named: Sequence[str | None]) -> None:
    for other in named:
        if other and other != user.id:
            raise UserRefused(
                f"You are signed in as the user {user.id!r}, and the request names {other!r}: leave the user out, or "
                f"sign in as {other!r}."
            )


@dataclass(frozen=True, slots=True)
class UserVerifier:
    """Checks the user of a request.

    `secret`: with which Open WebUI signs its users; None if every caller is trusted to name users.
    """

    secret: str | None = None

    def __post_init__(self) -> None:
        if self.secret is not None:
            import jwt  # noqa: F401 - for `read_signed_user`: a server imports nothing while it serves

    @property
    def is_required(self) -> bool:
        """True if a request may name a user only with a signature."""
        return self.secret is not None

    def find_verified_user(self, request: HTTPConnection) -> User | None:
        """Return the user to whom the caller is bound, or the user of the request's signature; None without both.

        Raises `Unauthorized` if the signature is invalid.
        """
        if bound := find_bound_user(request):
            return bound
        tokens = request.headers.getlist(HEADER)
        if self.secret is None or not tokens:
            return None
        if len(tokens) > 1:
            raise Unauthorized(f"There are {len(tokens)} headers {HEADER}: send one, because a request has one user.")
        return read_signed_user(tokens[0].strip(), self.secret)

    def verify(self, user_id: str | None, request: HTTPConnection) -> User | None:
        """Return the verified user of a request that names `user_id`; None if the named user is accepted as given.

        If the caller is bound to a user, the request counts for that user. Raises `UserRefused` if the request names
        another one. If signatures are required and the request names a user, raises `Unauthorized` unless that user is
        signed.
        """
        bound = find_bound_user(request, user_id)
        if bound or self.secret is None:
            return bound
        signed = self.find_verified_user(request)
        if user_id is None:
            return None
        if signed is None:
            raise Unauthorized(
                f"The request names a user without a signature: send {HEADER}, which Open WebUI adds if its "
                "FORWARD_USER_INFO_HEADER_JWT_SECRET is set."
            )
        if signed.id != user_id:
            raise Unauthorized("The request names another user than its signature.")
        return signed


RESULT_PATH = "/v1/tool-calls/"
OPEN_PATHS = frozenset({"/health", "/ready", CALLBACK_PATH})
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
