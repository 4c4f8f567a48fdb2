"""Public addresses, and the private ones that an admin may allow."""

from ipaddress import ip_address

import pytest

from callboard.errors import SettingsError
from callboard.skills.web.guard import AllowList, special_network

SPECIAL = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
    168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1
    192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1
    255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1
    100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:808:808::
    3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1
"""
PUBLIC = "1.1.1.1 8.8.8.8 93.184.216.34 100.128.0.1 172.32.0.1 192.167.255.255 2606:4700:4700::1111 2a00:1450:4001::1"


@pytest.mark.parametrize("text", SPECIAL.split())
def test_special_address_has_its_kind(text: str) -> None:
    assert special_network(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC.split())
def test_public_address_has_no_kind(text: str) -> None:
    assert special_network(ip_address(text)) is None


def test_the_allow_list_takes_names_addresses_and_networks() -> None:
    allowed = AllowList.read(("NAS.lan.", "192.168.1.5", "fd00::/8", "10.1.2.3/16", "[::1]"))
    covered = [("nas.lan", "10.9.9.9"), ("x", "192.168.1.5"), ("x", "fd12::1"), ("x", "10.1.200.1"), ("x", "::1")]
    others = [("nas", "192.168.1.4"), ("sub.nas.lan", "10.9.9.9"), ("x", "10.2.0.1"), ("x", "::ffff:192.168.1.5")]
    assert all(allowed.covers(host, ip_address(address)) for host, address in covered)
    assert not any(allowed.covers(host, ip_address(address)) for host, address in others)


@pytest.mark.parametrize("entry", ["http://nas.lan", "nas.lan:8123", "192.168.0.0/33", "a b", "user@nas"])
def test_an_entry_that_could_never_match_is_an_error_that_says_how_to_write_it(entry: str) -> None:
    with pytest.raises(SettingsError, match=r"CALLBOARD_ALLOWED_HOSTS: .* 192\.168\.0\.0/16"):
        AllowList.read((entry,))
