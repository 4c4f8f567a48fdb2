"""The pinned connection uses the host name in TLS and for the certificate."""

import ssl
from collections.abc import Callable

import httpx
import pytest

from callboard.skills.web.client import guarded_client
from callboard.skills.web.guard import AllowList, Guard
from tests.skills.web.names import Names
from tests.skills.web.sites import Reply, Site, page

ServerTLS = Callable[..., ssl.SSLContext]
GUARD = Guard(
    AllowList.read(("127.0.0.1",)), Names({"pinned.example": [["127.0.0.1"]], "other.example": [["127.0.0.1"]]})
)


async def test_tls_names_the_host_and_checks_its_certificate(server_tls: ServerTLS, client_tls: ssl.SSLContext) -> None:
    tls = server_tls("pinned.example")
    asked = []
    tls.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with Site(page("hello"), tls=tls) as site, guarded_client(GUARD, tls=client_tls) as client:
        response = await client.get(f"https://pinned.example.:{site.port}/path")
        assert (response.text, str(response.url)) == ("hello", f"https://pinned.example.:{site.port}/path")
        with pytest.raises(httpx.ConnectError, match=r"certificate is not valid for 'other.example'"):
            await client.get(f"https://other.example:{site.port}/")
    assert asked == ["pinned.example", "other.example"]


async def test_certificate_of_unknown_authority_is_refused(server_tls: ServerTLS) -> None:
    async with Site(page("hello"), tls=server_tls("pinned.example")) as site, guarded_client(GUARD) as client:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get(f"https://pinned.example:{site.port}/")
        assert site.heard == []


async def test_connection_is_not_shared_between_names(server_tls: ServerTLS, client_tls: ssl.SSLContext) -> None:
    tls = server_tls("pinned.example", "other.example")
    asked = []
    tls.sni_callback = lambda _socket, name, _context: asked.append(name)
    open_end = Reply(b"hello", headers={"Connection": "keep-alive"})
    async with Site(open_end, tls=tls) as site, guarded_client(GUARD, tls=client_tls) as client:
        for name in ("pinned.example", "other.example"):
            assert (await client.get(f"https://{name}:{site.port}/")).text == "hello"
    assert asked == ["pinned.example", "other.example"]


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site(page("proxy")) as proxy, Site(page("site")) as site:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with guarded_client(GUARD) as client:
            assert (await client.get(f"http://pinned.example:{site.port}/")).text == "site"
        assert proxy.connections == 0
