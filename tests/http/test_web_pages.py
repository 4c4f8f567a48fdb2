"""Foreign web pages cannot call the server: every request that a page can make a browser send, for every route."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from callboard.calls.sign_ins import CALLBACK_PATH
from callboard.errors import HostRefused
from callboard.http.gate import Access
from tests.http.target import KEY, SECRET, Headers, Target, Wanted, as_json, exchange, target

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIL = "http://evil.example"
CROSS_SITE = (("Origin", EVIL), ("Sec-Fetch-Site", "cross-site"))
EVENTS = ("GET", "/v1/runs/{run_id}/events")
WEBSOCKET = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)


def as_text_form(wanted: Wanted) -> bytes:
    """A form's one field, named like the beginning of the JSON so that its `=` falls into a string."""
    text = as_json(wanted).decode()
    return f'{text[:-1]}, "x": "="}}\r\n'.encode() if text else b"=\r\n"


def as_urlencoded(wanted: Wanted) -> bytes:
    return f"{quote(as_json(wanted))}=".encode()


def as_multipart(wanted: Wanted) -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n' + as_json(wanted) + b"\r\n--b--\r\n"


def typed(content_type: str) -> Headers:
    return (("Content-Type", content_type),)


def fetched(site: str, mode: str, dest: str) -> Headers:
    return (("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest))


JSON = typed("application/json")


@dataclass(frozen=True)
class Attack:
    """How each request is sent, and the status of the refusal; in `hosts` and `uri` PORT is the server's.

    `writing` alone: where the request only asks, it is no attack, since a page cannot read the answer.
    """

    name: str
    status: int
    headers: Headers = JSON
    hosts: tuple[str, ...] = ("127.0.0.1:PORT",)
    encode: Callable[[Wanted], bytes] = as_json
    method: str | None = None
    uri: str = "PATH"
    version: str = "1.1"
    writing: bool = False
    websocket: bool = False

    async def on(self, target: Target, wanted: Wanted) -> tuple[int, str]:
        """Status and text of the answer; the key is sent too where there is one."""
        hosts = [("Host", host.replace("PORT", str(target.port))) for host in self.hosts]
        headers = (*hosts, *self.headers, *target.own_headers.items())
        uri = self.uri.replace("PORT", str(target.port)).replace("PATH", wanted.path)
        body = b"" if self.websocket or self.method == "OPTIONS" else self.encode(wanted)
        method = "GET" if self.websocket else self.method or wanted.method
        answer = await exchange(target.port, method, uri, headers, body, self.version)
        return int(answer.split(b" ", 2)[1]), answer.decode("latin-1")


def rebinding(host: str, status: int = 421) -> Attack:
    return Attack(f"host {host}", status, hosts=(host,))


ATTACKS = [
    Attack("text/plain form", 403, (*CROSS_SITE, *typed("text/plain")), encode=as_text_form),
    Attack("urlencoded form", 403, (*CROSS_SITE, *typed("application/x-www-form-urlencoded")), encode=as_urlencoded),
    Attack("multipart form", 403, (*CROSS_SITE, *typed("multipart/form-data; boundary=b")), encode=as_multipart),
    Attack("text/plain form, no origin", 415, typed("text/plain"), encode=as_text_form, writing=True),
    Attack("text/plain that is JSON, no origin", 415, typed("text/plain;charset=UTF-8"), writing=True),
    Attack(
        "urlencoded form, no origin",
        415,
        typed("application/x-www-form-urlencoded"),
        encode=as_urlencoded,
        writing=True,
    ),
    Attack("multipart, no origin", 415, typed("multipart/form-data; boundary=b"), encode=as_multipart, writing=True),
    Attack("a type that begins like JSON", 415, typed("application/jsonp"), writing=True),
    Attack("JSON in a parameter of another type", 415, typed("text/plain; application/json"), writing=True),
    Attack("two types", 415, (*typed("text/plain"), *JSON), writing=True),
    Attack("two types in one", 415, typed("text/plain, application/json"), writing=True),
    Attack("no type", 403, CROSS_SITE),
    Attack("form that navigates, no origin", 403, fetched("cross-site", "navigate", "document"), writing=True),
    Attack("fetch no-cors", 403, (*CROSS_SITE, *typed("text/plain;charset=UTF-8"))),
    Attack("fetch no-cors without its origin", 403, fetched("cross-site", "no-cors", "empty")),
    Attack("fetch cors", 403, (*CROSS_SITE, *JSON, ("Sec-Fetch-Mode", "cors"))),
    Attack("beacon", 403, (*CROSS_SITE, *typed("text/plain;charset=UTF-8"), ("Sec-Fetch-Mode", "no-cors"))),
    Attack("another port of this machine", 403, (("Origin", "http://127.0.0.1:3000"), *JSON)),
    Attack("another port, same site", 403, (*fetched("same-site", "cors", "empty"), *JSON)),
    Attack("another name of this machine", 403, (("Origin", "http://localhost:1"), *JSON)),
    Attack("origin null", 403, (("Origin", "null"), *JSON)),
    Attack("origin empty", 403, (("Origin", ""), *JSON)),
    Attack("origin with userinfo", 403, (("Origin", "http://evil@127.0.0.1:PORT"), *JSON)),
    Attack("two origins", 403, (("Origin", "http://127.0.0.1:PORT"), ("Origin", EVIL), *JSON)),
    Attack("origin of an extension", 403, (("Origin", "chrome-extension://abc"), *JSON)),
    Attack("image", 403, fetched("cross-site", "no-cors", "image")),
    Attack("script", 403, fetched("cross-site", "no-cors", "script")),
    Attack("frame", 403, fetched("cross-site", "navigate", "iframe")),
    Attack("preflight", 403, (*CROSS_SITE, ("Access-Control-Request-Method", "DELETE")), method="OPTIONS"),
    Attack("preflight of JSON", 403, (*CROSS_SITE, ("Access-Control-Request-Method", "POST")), method="OPTIONS"),
    rebinding("evil.example:PORT"),
    rebinding("evil.example"),
    rebinding("127.0.0.1.evil.example:PORT"),
    rebinding("localhost.evil.example:PORT"),
    rebinding("evil.localhost:PORT"),
    rebinding("evil-localhost:PORT"),
    rebinding("localhost@evil.example:PORT"),
    rebinding("evil.example@localhost:PORT"),
    rebinding("localhost:PORT@evil.example"),
    rebinding("localhost#evil.example"),
    rebinding("localhost/evil.example"),
    rebinding("localhost:PORT, evil.example"),
    rebinding("[::1].evil.example"),
    rebinding("[evil.example]"),
    rebinding("::1"),
    rebinding("127.1:PORT"),
    rebinding("0x7f.0.0.1:PORT"),
    rebinding("2130706433:PORT"),
    rebinding("0177.0.0.1:PORT"),
    rebinding("[::ffff:127.0.0.1]:PORT"),
    rebinding("0.0.0.0:PORT"),
    rebinding("[::]:PORT"),
    rebinding("192.0.2.77:PORT"),
    rebinding("localhost..:PORT"),
    rebinding(".localhost:PORT"),
    rebinding("localhost:port"),
    rebinding("localhost:"),
    rebinding(""),
    rebinding("löcalhost"),
    rebinding("localhost." * 1000),
    Attack("rebinding, a page of that origin", 421, (("Origin", "http://evil.example:PORT"),), ("evil.example:PORT",)),
    Attack("rebinding, fetch metadata", 421, fetched("same-origin", "cors", "empty"), ("evil.example:PORT",)),
    Attack("rebinding, preflight", 421, (("Origin", EVIL),), ("evil.example",), method="OPTIONS"),
    Attack(
        "rebinding, forwarded host",
        421,
        (("X-Forwarded-Host", "127.0.0.1:PORT"), ("Forwarded", "host=127.0.0.1")),
        ("evil.example:PORT",),
    ),
    Attack("two hosts, ours first", 400, hosts=("127.0.0.1:PORT", "evil.example:PORT")),
    Attack("two hosts, ours last", 400, hosts=("evil.example:PORT", "127.0.0.1:PORT")),
    Attack("no host", 400, hosts=()),
    Attack("no host in HTTP/1.0", 421, hosts=(), version="1.0"),
    Attack("another host in HTTP/1.0", 421, hosts=("evil.example",), version="1.0"),
    Attack("absolute form", 404, uri="http://evil.example:PORTPATH"),
    Attack("absolute form of ours, another host", 421, hosts=("evil.example",), uri="http://127.0.0.1:PORTPATH"),
    Attack("websocket", 403, (*WEBSOCKET, *CROSS_SITE), websocket=True),
    Attack("websocket without an origin", 403, WEBSOCKET, websocket=True),
    Attack("websocket of our own origin", 403, (*WEBSOCKET, ("Origin", "http://127.0.0.1:PORT")), websocket=True),
    Attack("websocket, rebinding", 403, WEBSOCKET, ("evil.example:PORT",), websocket=True),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[None, KEY], ids=["without a key", "with the key"])
async def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    async with target(tmp_path_factory.mktemp("victim"), request.param) as found:
        yield found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_no_request_of_a_web_page_gets_through(victim: Target, attack: Attack) -> None:
    headers = tuple((name, value.replace("PORT", str(victim.port))) for name, value in attack.headers)
    for wanted in victim.requests.values():
        if attack.writing and wanted.method == "GET":
            continue
        status, answer = await replace(attack, headers=headers).on(victim, wanted)
        assert status == attack.status, f"{wanted}: {answer[:500]}"
        assert SECRET not in answer
        assert "access-control-allow-origin" not in answer.lower()
        if status != 400 and not attack.websocket:
            assert "x-content-type-options: nosniff" in answer.lower()
    await victim.check_unharmed()


async def test_refusals_have_the_error_format_and_advice(victim: Target) -> None:
    port = victim.port
    for headers, code, setting in (
        ((("Host", f"callboard:{port}"),), "host_refused", "CALLBOARD_TRUSTED_HOSTS=callboard "),
        ((("Host", f"127.0.0.1:{port}"), ("Origin", EVIL)), "origin_refused", "CALLBOARD_CORS_ORIGINS"),
        ((("Host", f"127.0.0.1:{port}"), *typed("text/plain")), "body_refused", "Content-Type: application/json"),
    ):
        answer = await exchange(port, "POST", "/v1/runs", headers, b"{}")
        error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert (error["code"], error["type"]) == (code, "invalid_request_error")
        assert setting in error["message"]


async def test_request_with_two_host_headers_is_refused() -> None:
    scope = {"type": "http", "method": "GET", "headers": [(b"host", b"localhost"), (b"host", b"evil.example")]}
    with pytest.raises(HostRefused, match="one Host header"):
        Access(frozenset(), frozenset()).check(scope)


@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with the key"])
async def test_same_requests_without_browser_headers_are_accepted(tmp_path: Path, key: str | None) -> None:
    async with target(tmp_path, key) as willing:
        client = willing.service.client
        client.headers.update(willing.own_headers)
        for route, wanted in willing.requests.items():
            if route not in (EVENTS, ("GET", CALLBACK_PATH)):  # no sign-in is open
                response = await client.request(wanted.method, wanted.path, json=wanted.body)
                assert response.is_success, f"{wanted}: {response.text}"
        assert willing.started == ["waiting", "again", "again", "again"]
        assert SECRET in (await client.get(willing.requests[EVENTS].path)).text
        assert (await client.get("/v1/chats/c/messages")).is_error
