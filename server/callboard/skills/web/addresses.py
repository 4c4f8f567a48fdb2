"""Which addresses belong to the public internet, and which others this server's admin allows. Pure.

The table is IANA's registries of special-purpose addresses (RFC 6890 and its successors), not
`ipaddress.is_global`, whose answers differ between the versions of Python. Of IPv6, 2000::/3 alone is
public: that leaves out every form that carries an IPv4 address within (mapped, compatible, NAT64),
and the two inside it, 6to4 and Teredo, are in the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from callboard.errors import SettingsError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for kind, networks in {
        "this machine": "0.0.0.0/8 127.0.0.0/8 ::/128 ::1/128",
        "a private network": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
        "a link-local network, where clouds keep their metadata": "169.254.0.0/16 fe80::/10",
        # Azure's, in the middle of public addresses.
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


def special_kind(address: Address) -> str | None:
    """What an address belongs to that is not the public internet; None for a public one."""
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    if address.version == 6 and address not in _PUBLIC_IPV6:
        return "a reserved network"
    return None


@dataclass(frozen=True, slots=True)
class AllowList:
    """Hosts that tools may fetch although they are not public: host names, and networks of addresses.

    A name stands for whatever it resolves to, and not for names below it.
    """

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, entries: Sequence[str]) -> "AllowList":
        """From `Settings.allowed_hosts`. Raises `SettingsError` for an entry that could never match."""
        names, networks = set(), []
        for entry in entries:
            try:
                networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                if set(entry) & set("/:@[] "):
                    raise SettingsError(
                        f"CALLBOARD_ALLOWED_HOSTS: {entry!r} is no host name, address or network: write it as "
                        "nas.lan, 192.168.1.5 or 192.168.0.0/16, without a scheme, port or path"
                    ) from None
                names.add(entry.lower().removesuffix("."))
        return cls(frozenset(names), tuple(networks))

    def covers(self, host: str, address: Address) -> bool:
        """Whether `address`, to which `host` resolved, is allowed by its name or by itself."""
        return host in self.names or any(address in network for network in self.networks)


def literal_address(host: str) -> Address | None:
    """The address that `host` is, written in its usual form; None for a name, and for every odd form."""
    try:
        return ip_address(host)
    except ValueError:
        return None
