"""A guard against SSRF: decides whether a URL that a model wrote may be fetched, and from which addresses.

Every host is resolved here, once, and all its addresses are checked. The client connects to these addresses and does
not resolve the name again (`callboard.skills.web.client`), so changing the DNS entry afterwards has no effect.

The table of addresses follows IANA's registries of special-purpose addresses (RFC 6890 and its successors).
`ipaddress.is_global` is not used, because its answers differ between versions of Python. In IPv6 only 2000::/3 is
public. That excludes every form that contains an IPv4 address (mapped, compatible, NAT64), except 6to4 and Teredo,
which are in the table.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

from callboard.errors import AddressRefused, SettingsError, ToolError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for kind, networks in {
        "this machine": "0.0.0.0/8 127.0.0.0/8 ::/128 ::1/128",
        "a private network": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
        "a link-local network, where clouds keep their metadata": "169.254.0.0/16 fe80::/10",
        # Azure's metadata address lies among public addresses.
        "a cloud's metadata": "168.63.129.16/32",
        "a provider's internal network": "100.64.0.0/10",
        "a multicast group": "224.0.0.0/4 ff00::/8",
        "a reserved network": "192.0.0.0/24 198.18.0.0/15 240.0.0.0/4 2001::/23 100::/64 5f00::/16",
        "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
        "an IPv6 form of IPv4": "192.88.99.0/24 ::/96 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 2002::/16",
    }.items()
    for network in networks.split()
)
_PUBLIC_IPV6 = IPv6Network("2000::/3")


def special_network(address: Address) -> str | None:
    """Return the kind of network of an address that is not public, or None for a public address."""
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    if address.version == 6 and address not in _PUBLIC_IPV6:
        return "a reserved network"
    return None


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts that tools may fetch although they are not public, as host names and networks.

    A name covers all its addresses, but not its subdomains.
    """

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, entries: Sequence[str]) -> "AllowList":
        """Return the list of these entries. Raises `SettingsError` for an entry that could never match."""
        names = set()
        networks = []
        for entry in entries:
            try:
                networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                if set(entry) & set("/:@[] "):
                    raise SettingsError(
                        f"CALLBOARD_ALLOWED_HOSTS: {entry!r} is not a host name, address or network: write it as "
                        "nas.lan, 192.168.1.5 or 192.168.0.0/16, without a scheme, port or path"
                    ) from None
                names.add(entry.lower().removesuffix("."))
        return cls(frozenset(names), tuple(networks))

    def covers(self, host: str, address: Address) -> bool:
        """Return whether an address, to which `host` resolved, is allowed by the host's name or by the address."""
        return host in self.names or any(address in network for network in self.networks)


def literal_address(host: str) -> Address | None:
    """Return the address that `host` is, in its usual form; None for a name, and for unusual forms of an address."""
    try:
        return ip_address(host)
    except ValueError:
        return None


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name and a port. Raises `OSError` if there are none."""

WEB_PORTS = frozenset({80, 443, 8000, 8008, 8080, 8443})
"""The ports of the public web. With others a model could talk to mail servers and databases, or scan ports."""

MAX_URL_CHARS = 4096

_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
# Browsers and inet_aton read a name as an IPv4 address if its last label is a number (WHATWG URL, "ends in a number").
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")


async def system_resolve(host: str, port: int) -> list[str]:
    """Return the system's addresses of a host, without duplicates."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def read_url(text: str) -> httpx.URL:
    """Return the URL of `text`. Raises `AddressRefused` for an invalid or ambiguous one.

    The parser is the one of the client that connects, because differences between two parsers are how such guards are
    bypassed.
    """
    if len(text) > MAX_URL_CHARS:
        raise AddressRefused(f"The address is longer than {MAX_URL_CHARS} characters: give a shorter one.")
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, UnicodeError) as error:
        raise AddressRefused(f"This address cannot be fetched: {error}.") from error
    if url.scheme not in ("http", "https"):
        raise AddressRefused("Only addresses that begin with http:// or https:// can be fetched.")
    if url.userinfo:
        raise AddressRefused("The address contains a user name or a password: leave out the part before the @.")
    if url.port is not None and not 0 < url.port < 65536:
        raise AddressRefused(f"The port {url.port} does not exist: leave it out.")
    return url


def normalize_host(url: httpx.URL) -> str:
    """Return the host in ASCII and lower case, without a final dot. Raises `AddressRefused` for unusual forms."""
    host = url.raw_host.decode("ascii").lower().removesuffix(".")
    if literal_address(host) is not None and "%" not in host:
        return host
    if not _NAME.fullmatch(host) or _NUMERIC.fullmatch(host):
        raise AddressRefused(
            f"The host of {str(url)[:200]!r} is not a valid host name or address: write it as example.org."
        )
    return host


@dataclass(frozen=True, slots=True)
class Guard:
    """An SSRF guard that allows the public web and the hosts that the admin allows."""

    allowed: AllowList = field(default_factory=AllowList)
    resolve: Resolve = field(default=system_resolve, repr=False)

    async def addresses(self, url: httpx.URL) -> tuple[str, ...]:
        """Return the addresses from which `url` may be fetched.

        Raises `AddressRefused` if any of the host's addresses is neither public nor allowed, and `ToolError` if there
        is no such host.
        """
        host = normalize_host(read_url(str(url)))
        port = url.port or (443 if url.scheme == "https" else 80)
        found: Sequence[str] = (host,)
        if literal_address(host) is None:
            try:
                found = await self.resolve(host, port)
            except (OSError, UnicodeError) as error:
                raise ToolError(f"There is no host named {host}: check the address.") from error
        for text in found:
            address = ip_address(text)
            if self.allowed.covers(host, address):
                continue
            if (kind := special_network(address)) is not None:
                # The address is left out, because an attacker could use it to map the network.
                raise AddressRefused(
                    f"{host} belongs to {kind}, which no tool may fetch: use a public address. The admin of this "
                    "server can allow private hosts in CALLBOARD_ALLOWED_HOSTS."
                )
            if port not in WEB_PORTS:
                raise AddressRefused(f"Port {port} is not a port of the web: use an address without a port.")
        return tuple(found)
