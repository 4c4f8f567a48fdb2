"""Protects the server from foreign web pages in the user's browser, before authentication and also without a key.

A browser sends requests for every page that it shows, also to servers on the user's machine, and the owner of a page
can make the page's own host name resolve to that machine (DNS rebinding). Therefore the server accepts only its own
names in the Host header, only allowed origins, and (in `auth`) only bodies of a type that other origins cannot send
without a CORS preflight. `X-Forwarded-Host` is not read, because a page that uses DNS rebinding can set it.
"""

import ipaddress
import re
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from callboard._trace_context import within
from callboard.errors import HostRefused, OriginRefused, RequestError
from callboard.http.errors import error_response
from callboard.settings import Settings

ANY_ORIGIN = "*"
MAX_HOST_CHARS = 253
REQUEST_ID = "X-Request-Id"

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>(?:[a-z0-9_-]+\.)*[a-z0-9_-]+)\.?)(?::[0-9]{1,5})?")
_PAGE = re.compile(r"https?://(?P<host>[^/@]+)")
_WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids as proxies and clients make them: UUIDs, hex, base64, paths. No character can end or forge a log line."""

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
        headers = Headers(scope=scope)
        hosts = [host.lower() for host in headers.getlist("host")]
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
        # The handshake of a WebSocket is a GET, and its scope has no method.
        if not self._may_call(headers, scope.get("method", "GET"), hosts[0]):
            raise OriginRefused(
                "this web page may not call the server: if it is yours, allow its origin with CALLBOARD_CORS_ORIGINS, "
                "for example CALLBOARD_CORS_ORIGINS=https://chat.example.org"
            )

    def allows(self, origin: str) -> bool:
        """Return whether web pages of that origin may call."""
        return origin != "null" and (origin in self.origins or ANY_ORIGIN in self.origins)

    def _is_own_name(self, name: str, scope: Scope) -> bool:
        """Return whether the name or address in the Host header is one of this server."""
        local = str(scope["server"][0]) if scope.get("server") else ""
        address = _read_address(name)
        if address is None:
            # Starlette's TestClient, which FastAPI uses too, calls the application without a connection and sets
            # `server` to this name. For a real connection, `server` is an address.
            # https://github.com/encode/starlette/blob/master/starlette/testclient.py
            is_known = name == "localhost" or name in self.hosts or name == local == "testserver"
            parent_domains = (name[at:] for at, char in enumerate(name) if char == ".")
            return is_known or any(f"*{domain}" in self.hosts for domain in parent_domains)
        if address.is_loopback or str(address) in self.hosts:
            return True
        # A link-local address ends with "%" and its interface; a dual-stack socket shows IPv4 addresses as IPv4-mapped.
        return address == _read_address(local.partition("%")[0].removeprefix("::ffff:"))

    def _may_call(self, headers: Headers, method: str, host: str) -> bool:
        """Return whether the request comes from an allowed page, or from no page."""
        origins = headers.getlist("origin")
        if origins:
            page = _PAGE.fullmatch(origins[0].lower())
            is_own_page = page is not None and page["host"] == host
            return len(origins) == 1 and (is_own_page or self.allows(origins[0]))
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return True
        # The user follows a link in the browser: the page with the link cannot read the response.
        wanted = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        return method == "GET" and all(headers.get(name) == value for name, value in wanted.items())


def _read_address(name: str) -> Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    # Browsers write an IPv4-mapped address only if a page's URL has one, and Python's versions treat it differently.
    return None if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped else address


class Gate:
    """Middleware that gives each request an id, and answers 421 or 403 to requests that `Access` refuses.

    The response and all log lines of the request, and of a run that it starts, carry the id. If the request has a
    `traceparent` header, it continues the client's trace. No response may be sniffed for another MIME type. WebSockets
    are checked in the same way, because browsers open them without a CORS preflight.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request to an allowed host from an allowed origin, and refuse all others."""
        headers = Headers(scope=scope)
        ids = headers.getlist(REQUEST_ID)
        # A new id if there is none, or several, or one that is not well-formed.
        request_id = ids[0] if len(ids) == 1 and _WELL_FORMED_ID.fullmatch(ids[0]) else uuid4().hex
        parents = headers.getlist("traceparent")
        # Several traces count as none.
        parent = parents[0] if len(parents) == 1 else ""
        trace = {"traceparent": parent, "tracestate": ",".join(headers.getlist("tracestate"))}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                given[REQUEST_ID] = request_id
                given["X-Content-Type-Options"] = "nosniff"
            await send(message)

        with bound_contextvars(request_id=request_id), within(trace):
            refusal = self._find_refusal(scope, headers)
            if refusal is None:
                await self._app(scope, receive, send_with_headers)
            elif scope["type"] == "websocket":
                # Closing before accepting makes the server answer the handshake with 403.
                await send({"type": "websocket.close"})
            else:
                await refusal(scope, receive, send_with_headers)

    def _find_refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response to a request that may not pass; None if it may."""
        if scope["type"] == "http" and "content-length" in headers and "transfer-encoding" in headers:
            # A proxy and a server that use different headers for the length see different requests in the same bytes.
            # The connection is closed to prevent request smuggling (RFC 9112, 6.3).
            error = RequestError("a request has either Content-Length or Transfer-Encoding: send one of them")
            refusal = error_response(error, HTTPStatus.BAD_REQUEST)
            refusal.headers["Connection"] = "close"
            return refusal
        try:
            self._access.check(scope)
        except RequestError as error:
            refusal = error_response(error)
            origin = headers.get("origin")
            if origin and self._access.allows(origin):
                refusal.headers.update({"Access-Control-Allow-Origin": origin, "Vary": "Origin"})
            return refusal
        return None
