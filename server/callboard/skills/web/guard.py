"""Whether a URL that a model wrote may be fetched, and at which addresses: the guard against SSRF.

Every host is resolved here, once, and every address that it has is looked at. The one who connects
connects to these addresses and resolves nothing again (`callboard.skills.web.client`), so a name
that points elsewhere a moment later has no effect.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

import httpx

from callboard.errors import AddressRefused, ToolError
from callboard.skills.web.addresses import AllowList, literal_address, special_kind

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host name and a port to addresses; raises `OSError` where there are none."""

WEB_PORTS = frozenset({80, 443, 8000, 8008, 8080, 8443})
"""Where the public web is. Others would let a model speak to mail servers and databases, or scan ports."""

MAX_URL_CHARS = 4096

_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
# What browsers and inet_aton take for an IPv4 address: its last label is a number (WHATWG URL, "ends in a number").
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")


async def system_resolve(host: str, port: int) -> list[str]:
    """All addresses that the system has for a host, each once."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def read_url(text: str) -> httpx.URL:
    """The URL of `text`. Raises `AddressRefused` for what is none, or can be read in two ways.

    The reader is the one of the client that connects: two readers that differ are how such
    guards are tricked.
    """
    if len(text) > MAX_URL_CHARS:
        raise AddressRefused(f"The address is longer than {MAX_URL_CHARS} characters: give a shorter one.")
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, UnicodeError) as error:
        raise AddressRefused(f"This is no address that can be fetched: {error}.") from error
    if url.scheme not in ("http", "https"):
        raise AddressRefused("Only addresses that begin with http:// or https:// can be fetched.")
    if url.userinfo:
        raise AddressRefused("The address carries a user name or a password: leave out what stands before the @.")
    if url.port is not None and not 0 < url.port < 65536:
        raise AddressRefused(f"There is no port {url.port}: leave it out.")
    return url


def host_of(url: httpx.URL) -> str:
    """The host as it is looked up: ASCII, lower case, without a final dot. Raises `AddressRefused` for odd ones."""
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    if literal_address(host) is not None and "%" not in host:
        return host
    if not _NAME.fullmatch(host) or _NUMERIC.fullmatch(host):
        raise AddressRefused(
            f"The host of {str(url)[:200]!r} is no usual host name or address: write it as example.org."
        )
    return host


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets the public web pass, and what the admin allows."""

    allowed: AllowList = field(default_factory=AllowList)
    resolve: Resolve = field(default=system_resolve, repr=False)

    async def addresses(self, url: httpx.URL) -> tuple[str, ...]:
        """The addresses at which to fetch `url`, one or more.

        Raises `AddressRefused` where one of them is not public and not allowed, whatever the
        others are, and `ToolError` where the host has none.
        """
        host = host_of(read_url(str(url)))
        port = url.port or (443 if url.scheme == "https" else 80)
        literal = literal_address(host)
        found = (host,) if literal is not None else await self._resolved(host, port)
        for text in found:
            address = ip_address(text)
            if self.allowed.covers(host, address):
                continue
            if (kind := special_kind(address)) is not None:
                # The address itself stays untold: it is what someone who maps a network is after.
                raise AddressRefused(
                    f"{host} belongs to {kind}, which no tool may fetch: use a public address. Whoever runs this "
                    "server can allow a host of their own in CALLBOARD_ALLOWED_HOSTS."
                )
            if port not in WEB_PORTS:
                raise AddressRefused(f"Port {port} is not one of the web's: leave it out, or use an address without.")
        return tuple(found)

    async def _resolved(self, host: str, port: int) -> tuple[str, ...]:
        try:
            found = await self.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"There is no host named {host}: check the address.") from error
        if not found:
            raise ToolError(f"The host {host} has no address: check the address.")
        return tuple(found)
