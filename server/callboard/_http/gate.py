"""The gate against web pages, in front of auth and the same with a key and without.

A browser sends requests for every page that it shows, to this machine too, and a page's owner can make its name point
here (DNS rebinding). So the server answers only to its own names, only to pages that it was told of, and reads only
bodies that a foreign page cannot send without asking first.
"""

import ipaddress
import re
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard._http.errors import answer_error
from callboard._settings import Settings
from callboard.errors import BodyRefused, HostRefused, OriginRefused, RequestError

ANY_ORIGIN = "*"
MAX_HOST_CHARS = 253
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
JSON = "application/json"

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>(?:[a-z0-9_-]+\.)*[a-z0-9_-]+)\.?)(?::[0-9]{1,5})?")
_PAGE = re.compile(r"https?://(?P<host>[^/@]+)")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Access:
    """The callers that may pass: by the server's own names beside those of this machine, and the allowed web pages.

    `hosts` are names and addresses in lower case, `*.example.org` for all below that one; `origins` are such as
    `https://chat.example.org`, `*` for all of them.
    """

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, settings: Settings) -> "Access":
        """Return the access that the settings give."""
        hosts = {*settings.trusted_hosts}
        address = _read_address(settings.host)
        if settings.host and not (address and address.is_unspecified):
            hosts.add(str(address or settings.host.lower()))
        if settings.public_url and (public := urlsplit(settings.public_url).hostname):
            hosts.add(public)
        return cls(frozenset(hosts), frozenset(settings.cors_origins))

    def check(self, scope: Scope) -> None:
        """Raise `HostRefused` or `OriginRefused` for a request that may not pass."""
        host = self._check_host(scope)
        self._check_origin(Headers(scope=scope), scope["method"], host)

    def allows(self, origin: str) -> bool:
        """Return whether pages of that origin may call."""
        return origin != "null" and (origin in self.origins or ANY_ORIGIN in self.origins)

    def _check_host(self, scope: Scope) -> str:
        """Return the Host header in lower case. Raises `HostRefused` where there is not one, with a name of ours."""
        given = [host.lower() for host in Headers(scope=scope).getlist("host")]
        read = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        name = (read["ipv6"] or read["name"]) if read else ""
        if not 0 < len(name) <= MAX_HOST_CHARS:
            raise HostRefused("the request must have one Host header, with a name or an address of this server")
        if not self._is_ours(name, scope):
            raise HostRefused(
                f"this server is not known as {name}: if it is, set CALLBOARD_TRUSTED_HOSTS={name} for it (more with "
                "commas) and start it again, or call it by its address"
            )
        return given[0]

    def _is_ours(self, name: str, scope: Scope) -> bool:
        address = _read_address(name)
        if address is None:
            above = (name[at:] for at, char in enumerate(name) if char == ".")
            is_known = name == "localhost" or name in self.hosts or _is_test_client(name, scope)
            return is_known or any(f"*{rest}" in self.hosts for rest in above)
        return address.is_loopback or str(address) in self.hosts or address == _read_local_address(scope)

    def _check_origin(self, headers: Headers, method: str, host: str) -> None:
        origins = headers.getlist("origin")
        if origins:
            page = _PAGE.fullmatch(origins[0].lower())
            own = page is not None and page["host"] == host
            if len(origins) == 1 and (own or self.allows(origins[0])):
                return
        elif headers.get("sec-fetch-site", "none") in ("none", "same-origin") or _is_navigation(headers, method):
            return
        raise OriginRefused(
            "this web page may not call the server: where it is yours, allow its origin with CALLBOARD_CORS_ORIGINS, "
            "such as CALLBOARD_CORS_ORIGINS=https://chat.example.org"
        )


def _read_address(name: str) -> Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    # No browser writes an IPv4 address in this way unless a page asks for it, and Python's versions differ on it.
    return None if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped else address


def _read_local_address(scope: Scope) -> Address | None:
    """Return the address of this machine that the connection came in on; None where it is not known."""
    server = scope.get("server")
    if not server:
        return None
    # A link-local address has its interface behind a "%"; one socket for both families shows IPv4 within IPv6.
    return _read_address(str(server[0]).partition("%")[0].removeprefix("::ffff:"))


def _is_test_client(name: str, scope: Scope) -> bool:
    """Return whether the request is one of Starlette's TestClient, which FastAPI has too.

    It calls the application without a connection. Of a connection, `server` is an address of this machine.
    https://github.com/encode/starlette/blob/master/starlette/testclient.py
    """
    server = scope.get("server")
    return server is not None and name == server[0] == "testserver"


def _is_navigation(headers: Headers, method: str) -> bool:
    """Return whether somebody follows a link: the page that has it cannot read what is shown."""
    wanted = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    return method == "GET" and all(headers.get(name) == value for name, value in wanted.items())


class Gate:
    """Middleware that answers 421 or 403 to what `Access` refuses, and lets no browser guess what an answer is.

    A WebSocket is opened for the same callers alone: no browser asks before it opens one.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._pass_websocket(scope, receive, send)
            return

        async def send_without_sniffing(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)

        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            await _refuse_two_lengths(scope, receive, send_without_sniffing)
            return
        try:
            self._access.check(scope)
        except RequestError as error:
            refusal = answer_error(error)
            origin = headers.get("origin")
            if origin and self._access.allows(origin):
                refusal.headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            await refusal(scope, receive, send_without_sniffing)
            return
        await self._app(scope, receive, send_without_sniffing)

    async def _pass_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # What opens one is a GET.
            self._access.check({**scope, "method": "GET"})
        except RequestError:
            # Closed before it is accepted: the handshake is answered with 403.
            await send({"type": "websocket.close"})
            return
        await self._app(scope, receive, send)


async def _refuse_two_lengths(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 400 and close the connection.

    A proxy that goes by the one length and a server that goes by the other see different requests in the same bytes
    (RFC 9112, 6.3): what follows may be somebody else's, or was hidden from the proxy.
    """
    error = RequestError("a request has either Content-Length or Transfer-Encoding: send one of them")
    refusal = answer_error(error, HTTPStatus.BAD_REQUEST)
    refusal.headers["Connection"] = "close"
    await refusal(scope, receive, send)


class NoNul:
    """Middleware that answers 422 to a path or a query with a NUL in it: nothing is kept by such a name.

    SQLite would look for it and find nothing, PostgreSQL refuses to.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] == "http" and ("\0" in scope["path"] or b"%00" in scope["query_string"]):
            refusal = RequestError("the address holds a NUL character (%00), which no id has: leave it out")
            await answer_error(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class JsonBodies:
    """Middleware that answers 415 to a body of another type: forms and beacons send some without asking, JSON never."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] == "http" and not _may_be_read(scope["method"], Headers(scope=scope)):
            refusal = BodyRefused(f"a request's body must be JSON and say so: send Content-Type: {JSON}")
            await answer_error(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _may_be_read(method: str, headers: Headers) -> bool:
    if method in METHODS_WITHOUT_BODY:
        return True
    types = [value.partition(";")[0].strip().lower() for value in headers.getlist("content-type")]
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return set(types) == {JSON} if types or has_body else True
