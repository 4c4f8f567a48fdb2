"""Protects the server from foreign web pages in the user's browser, before authentication and also without a key.

A browser sends requests for every page that it shows, also to servers on the user's machine, and the owner of a page
can make the page's own host name resolve to that machine (DNS rebinding). Therefore the server accepts only its own
names in the Host header, only allowed origins, and only bodies of a type that other origins cannot send without a
CORS preflight.
"""

import ipaddress
import re
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard.errors import BodyRefused, HostRefused, OriginRefused, RequestError
from callboard.http.errors import error_response
from callboard.settings import Settings

ANY_ORIGIN = "*"
MAX_HOST_CHARS = 253
METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})
JSON = "application/json"

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>(?:[a-z0-9_-]+\.)*[a-z0-9_-]+)\.?)(?::[0-9]{1,5})?")
_PAGE = re.compile(r"https?://(?P<host>[^/@]+)")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Access:
    """Checks the Host and Origin headers of requests.

    `hosts`: names and addresses of the server besides loopback, in lower case; `*.example.org` allows all subdomains.
    `origins`: web pages that may call, for example `https://chat.example.org`; `*` allows all.
    """

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def from_settings(cls, settings: Settings) -> "Access":
        """Return the hosts and origins that the settings allow."""
        hosts = {*settings.trusted_hosts}
        address = _read_address(settings.host)
        if settings.host and not (address and address.is_unspecified):
            hosts.add(str(address or settings.host.lower()))
        if settings.public_url and (public := urlsplit(settings.public_url).hostname):
            hosts.add(public)
        return cls(frozenset(hosts), frozenset(settings.cors_origins))

    def check(self, scope: Scope) -> None:
        """Raise `HostRefused` or `OriginRefused` if the request is not allowed."""
        host = self._check_host(scope)
        self._check_origin(Headers(scope=scope), scope["method"], host)

    def allows(self, origin: str) -> bool:
        """Return whether web pages of that origin may call."""
        return origin != "null" and (origin in self.origins or ANY_ORIGIN in self.origins)

    def _check_host(self, scope: Scope) -> str:
        """Return the Host header in lower case; raise `HostRefused` unless there is exactly one, with an own name."""
        hosts = [host.lower() for host in Headers(scope=scope).getlist("host")]
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        name = (match["ipv6"] or match["name"]) if match else ""
        if not 0 < len(name) <= MAX_HOST_CHARS:
            raise HostRefused("the request must have one Host header, with a name or an address of this server")
        if not self._is_own_name(name, scope):
            raise HostRefused(
                f"this server does not know the name {name}: if it is a name of the server, set "
                f"CALLBOARD_TRUSTED_HOSTS={name} (several names with commas) and restart the server, or call it by its "
                "address"
            )
        return hosts[0]

    def _is_own_name(self, name: str, scope: Scope) -> bool:
        address = _read_address(name)
        if address is None:
            parent_domains = (name[at:] for at, char in enumerate(name) if char == ".")
            is_known = name == "localhost" or name in self.hosts or _is_test_client(name, scope)
            return is_known or any(f"*{domain}" in self.hosts for domain in parent_domains)
        return address.is_loopback or str(address) in self.hosts or address == _read_local_address(scope)

    def _check_origin(self, headers: Headers, method: str, host: str) -> None:
        origins = headers.getlist("origin")
        if origins:
            page = _PAGE.fullmatch(origins[0].lower())
            is_own_page = page is not None and page["host"] == host
            if len(origins) == 1 and (is_own_page or self.allows(origins[0])):
                return
        elif headers.get("sec-fetch-site", "none") in ("none", "same-origin") or _is_navigation(headers, method):
            return
        raise OriginRefused(
            "this web page may not call the server: if it is yours, allow its origin with CALLBOARD_CORS_ORIGINS, "
            "for example CALLBOARD_CORS_ORIGINS=https://chat.example.org"
        )


def _read_address(name: str) -> Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    # Browsers write an IPv4-mapped address only if a page's URL has one, and Python's versions treat it differently.
    return None if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped else address


def _read_local_address(scope: Scope) -> Address | None:
    """Return the local address of the connection; None if it is unknown."""
    server = scope.get("server")
    if not server:
        return None
    # A link-local address ends with "%" and its interface; a dual-stack socket shows IPv4 addresses as IPv4-mapped.
    return _read_address(str(server[0]).partition("%")[0].removeprefix("::ffff:"))


def _is_test_client(name: str, scope: Scope) -> bool:
    """Return whether the request comes from Starlette's TestClient, which FastAPI uses too.

    It calls the application without a connection and sets `server` to a name. For a real connection, `server` is an
    address. https://github.com/encode/starlette/blob/master/starlette/testclient.py
    """
    server = scope.get("server")
    return server is not None and name == server[0] == "testserver"


def _is_navigation(headers: Headers, method: str) -> bool:
    """Return whether the user follows a link in the browser: the page with the link cannot read the response."""
    wanted = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    return method == "GET" and all(headers.get(name) == value for name, value in wanted.items())


class Gate:
    """Middleware that answers 421 or 403 to requests that `Access` refuses, and forbids MIME sniffing of responses.

    WebSockets are checked in the same way, because browsers open them without a CORS preflight.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request to an allowed host from an allowed origin, and refuse all others."""
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
            refusal = error_response(error)
            origin = headers.get("origin")
            if origin and self._access.allows(origin):
                refusal.headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            await refusal(scope, receive, send_without_sniffing)
            return
        await self._app(scope, receive, send_without_sniffing)

    async def _pass_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # The handshake of a WebSocket is a GET.
            self._access.check({**scope, "method": "GET"})
        except RequestError:
            # Closing before accepting makes the server answer the handshake with 403.
            await send({"type": "websocket.close"})
            return
        await self._app(scope, receive, send)


async def _refuse_two_lengths(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 400 and close the connection, to prevent request smuggling (RFC 9112, 6.3).

    A proxy and a server that use different headers for the length see different requests in the same bytes.
    """
    error = RequestError("a request has either Content-Length or Transfer-Encoding: send one of them")
    refusal = error_response(error, HTTPStatus.BAD_REQUEST)
    refusal.headers["Connection"] = "close"
    await refusal(scope, receive, send)


class RefuseMalformed:
    """Middleware that answers 422 to an address with a NUL character, and 415 to a body that is not declared as JSON.

    No stored id contains a NUL. SQLite would search and find nothing; PostgreSQL reports an error. Web pages can send
    bodies of other types (forms, beacons) to any origin without a CORS preflight, but not JSON.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a well-formed request, and refuse all others."""
        error = _find_fault(scope) if scope["type"] == "http" else None
        await (error_response(error) if error else self._app)(scope, receive, send)


def _find_fault(scope: Scope) -> RequestError | None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return RequestError("the address contains a NUL character (%00), which no id has: remove it")
    if not _is_json_or_empty(scope["method"], Headers(scope=scope)):
        return BodyRefused(f"the request's body must be declared as JSON: send Content-Type: {JSON}")
    return None


def _is_json_or_empty(method: str, headers: Headers) -> bool:
    if method in METHODS_WITHOUT_BODY:
        return True
    types = [value.partition(";")[0].strip().lower() for value in headers.getlist("content-type")]
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return set(types) == {JSON} if types or has_body else True
