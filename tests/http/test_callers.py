"""Allowed callers get responses: clients without a browser, by each name of the server, and allowed web pages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import SecretStr

from callboard.agents import RunContext
from callboard.errors import HostRefused
from callboard.http.gate import Access
from callboard.settings import Settings
from callboard_protocol import Event
from tests.http.target import KEY, SECRET, Headers, exchange, target
from tests.serving import serving

CHAT = "https://chat.example.org"
SENT_HEADERS = ("authorization", "content-type", "last-event-id", "x-stainless-lang", "x-stainless-retry-count")
PREFLIGHT = {
    "Origin": CHAT,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": ",".join(SENT_HEADERS),
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "cors",
}


async def status(port: int, *headers: tuple[str, str], method: str = "GET", body: bytes = b"") -> int:
    """The status of the models' list, or of a run where there is a body."""
    answer = await exchange(port, method, "/v1/runs" if body else "/v1/models", tuple(headers), body)
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:PORT", "127.9.9.9:1", "localhost", "LocalHost:PORT", "localhost.", "[::1]:PORT"]
)
async def test_loopback_answers_by_each_of_its_names(tmp_path: Path, host: str) -> None:
    async with target(tmp_path) as found:
        assert await status(found.port, ("Host", host.replace("PORT", str(found.port)))) == 200


@pytest.mark.parametrize(
    "host", ["callboard:8700", "CALLBOARD.", "a.example.com", "b.a.example.com", "192.0.2.9", "[fd00::9]:1"]
)
async def test_trusted_hosts_answer(tmp_path: Path, host: str) -> None:
    trusted = "Callboard, *.example.com, 192.0.2.9, [FD00::9]"
    async with target(tmp_path, trusted_hosts=trusted, public_url="https://board.example.org/below") as found:
        assert await status(found.port, ("Host", "board.example.org")) == 200
        assert await status(found.port, ("Host", host)) == 200
        for other in ("example.com", "evilexample.com", "callboard.evil.example", "x.callboard", "192.0.2.8"):
            assert await status(found.port, ("Host", other)) == 421


@pytest.mark.parametrize(
    ("server", "host", "known"),
    [
        ("192.0.2.7", "192.0.2.7:8700", True),
        ("192.0.2.7", "192.0.2.8:8700", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("fd00::7", "[fd00:0::7]:8700", True),
        ("fe80::7%eth0", "[fe80::7]", True),
        ("/run/callboard.sock", "/run/callboard.sock", False),
        (None, "192.0.2.7", False),
    ],
)
def test_the_bound_address_is_the_one_that_the_connection_came_in_on(
    server: str | None, host: str, known: bool
) -> None:
    access = Access.from_settings(Settings(host="0.0.0.0", api_key=SecretStr(KEY)))
    headers = [(b"host", host.encode())]
    scope = {"type": "http", "method": "GET", "headers": headers, "server": (server, 8700) if server else None}
    if known:
        access.check(scope)
    else:
        with pytest.raises(HostRefused):
            access.check(scope)


async def test_a_server_that_listens_on_ipv6_answers_there(tmp_path: Path) -> None:
    async with serving(tmp_path, host="::1") as service:
        port = service.client.base_url.port
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://[::1]:{port}/v1/models")).status_code == 200
            refused = await client.get(f"http://[::1]:{port}/v1/models", headers={"Host": "evil.example"})
            assert refused.status_code == 421


JSON_TYPES = ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", " application/json ;x=y"]


@pytest.mark.parametrize("content_type", JSON_TYPES)
async def test_variants_of_the_json_content_type_are_accepted(tmp_path: Path, content_type: str) -> None:
    async with target(tmp_path) as found:
        headers = (("Host", "localhost"), ("Content-Type", content_type))
        body = b'{"agent": "scripted", "messages": [{"role": "user", "content": "hi"}]}'
        assert await status(found.port, *headers, method="POST", body=body) == 200


async def test_a_chunked_body_must_say_that_it_is_json_too(tmp_path: Path) -> None:
    async with target(tmp_path) as found:
        headers = (("Host", "localhost"), ("Transfer-Encoding", "chunked"))
        answer = await exchange(found.port, "POST", "/v1/runs", headers, b"")
        assert b" 415 " in answer.split(b"\r\n")[0]
        await found.check_unharmed()


async def test_cancel_works_without_body_and_content_type(tmp_path: Path) -> None:
    async with target(tmp_path) as found:
        for headers in ((), (("Content-Length", "0"),)):
            answer = await exchange(
                found.port, "POST", "/v1/runs/waiting/cancel", (("Host", "localhost"), *headers), b""
            )
            assert b" 202 " in answer.split(b"\r\n")[0]


async def test_same_origin_page_may_call(tmp_path: Path) -> None:
    async with target(tmp_path) as found:
        own = f"localhost:{found.port}"
        same: Headers = (("Host", own), ("Origin", f"http://{own}"), ("Sec-Fetch-Site", "same-origin"))
        assert await status(found.port, *same) == 200
        assert await status(found.port, ("Host", own), ("Sec-Fetch-Site", "none")) == 200


async def test_a_signed_link_in_an_answer_opens_when_somebody_follows_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"result_link_seconds": 60, "public_url": "https://board.example.org"}
    followed = {
        "Host": "board.example.org",
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    async with target(tmp_path, KEY, **settings) as found:
        link = urlsplit(str(found.service.state.links.to_result("c", "t")))
        opened = await found.service.client.get(f"{link.path}?{link.query}", headers=followed)
        assert (opened.status_code, opened.text) == (200, SECRET)
        framed = await found.service.client.get(
            f"{link.path}?{link.query}", headers=followed | {"Sec-Fetch-Dest": "iframe"}
        )
        assert framed.status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/chats/c/messages",
        "/v1/tool-calls",
        "/v1/tool-calls/../chats/c/messages",
        "/v1/tool-calls/t/../../chats/c/messages",
        "/v1/tool-calls/%2e%2e/chats/c/messages",
        "/v1/tool-calls/%74%2500",
        "/v1/tool-calls/%2574",
        "/v1/tool-calls/t/",
        "//v1/tool-calls/t",
        "/health/../v1/models",
    ],
)
async def test_a_signed_link_opens_its_own_result_and_nothing_else(tmp_path: Path, path: str) -> None:
    async with target(tmp_path, KEY, result_link_seconds=60, public_url="https://board.example.org") as found:
        query = urlsplit(str(found.service.state.links.to_result("c", "t"))).query
        own = f"127.0.0.1:{found.port}"
        opened = await exchange(found.port, "GET", f"/v1/tool-calls/%74?{query}", (("Host", own),), b"")
        # Starlette before 1.0.1 put a path that stands in Host before the one that was asked for.
        for host in (own, f"{own}/v1/tool-calls/t?{query}#", f"{own}/health?"):
            refused = await exchange(found.port, "GET", f"{path}?{query}", (("Host", host),), b"")
            assert SECRET.encode() not in refused
            assert int(refused.split(b" ", 2)[1]) >= 400
    head, _, body = opened.partition(b"\r\n\r\n")
    assert body == SECRET.encode()
    assert b"cache-control: private, no-store" in head.lower()


async def test_responses_with_user_data_forbid_caching(tmp_path: Path) -> None:
    async with target(tmp_path, KEY) as found:
        for (method, route), asked in found.requests.items():
            if method == "GET" and any(part in route for part in ("/files/", "chats", "tool-calls")):
                answer = await found.service.client.get(asked.path, headers=found.own_headers)
                assert (answer.status_code, answer.headers.get("cache-control")) == (200, "private, no-store"), route


async def test_an_allowed_page_has_its_preflights_answered_and_reads_answers_and_errors(tmp_path: Path) -> None:
    async with target(tmp_path, KEY, cors_origins=f"{CHAT}, http://localhost:3000") as found:
        client = found.service.client
        for path in ("/v1/responses", "/v1/runs"):
            preflight = await client.options(path, headers=PREFLIGHT)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == CHAT
            allowed = preflight.headers["access-control-allow-headers"].lower()
            assert set(SENT_HEADERS) <= {name.strip() for name in allowed.split(",")}
        deleting = PREFLIGHT | {"Access-Control-Request-Method": "DELETE"}
        assert (
            "DELETE" in (await client.options("/v1/chats/c", headers=deleting)).headers["access-control-allow-methods"]
        )

        page = {"Origin": CHAT, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
        read = await client.get("/v1/models", headers=page | found.own_headers)
        assert SECRET in read.text
        for exposed in ("X-Should-Retry", "X-Request-Id"):
            assert exposed in read.headers["access-control-expose-headers"]
        errors = [
            (401, await client.get("/v1/models", headers=page)),
            (404, await client.get("/nowhere", headers=page | found.own_headers)),
            (415, await client.post("/v1/runs", content=b"{}", headers=page | found.own_headers)),
            (421, await client.get("/v1/models", headers=page | {"Host": "evil.example"})),
            (422, await client.post("/v1/runs", json={}, headers=page | found.own_headers)),
        ]
        for code, answer in (*errors, (200, read)):
            assert answer.status_code == code
            assert answer.headers["access-control-allow-origin"] == CHAT
            assert "Origin" in answer.headers["vary"]
            assert answer.headers["x-content-type-options"] == "nosniff"

        for other in ("https://evil.example", f"{CHAT}.evil.example", "http://chat.example.org", "null", f"{CHAT}:444"):
            for refused in (
                await client.options("/v1/runs", headers=PREFLIGHT | {"Origin": other}),
                await client.get("/v1/models", headers=page | {"Origin": other} | found.own_headers),
            ):
                assert refused.status_code == 403
                assert "access-control-allow-origin" not in refused.headers


class Nameless:
    """An agent that the server fails to list."""

    agent_id = "nameless"
    description = ""

    is_broken = False

    @property
    def name(self) -> str:
        if self.is_broken:
            raise RuntimeError("no name")
        return "Nameless"

    def run(self, context: RunContext) -> AsyncIterator[Event]:
        raise NotImplementedError


async def test_allowed_page_can_read_internal_errors(tmp_path: Path) -> None:
    async with target(tmp_path, cors_origins=CHAT) as found:
        nameless = Nameless()
        found.service.state.registry.add(nameless)
        nameless.is_broken = True
        failed = await found.service.client.get("/v1/models", headers={"Origin": CHAT})
        assert failed.status_code == 500
        assert failed.headers["access-control-allow-origin"] == CHAT
        assert failed.headers["x-content-type-options"] == "nosniff"


async def test_any_origin_may_call_with_a_key_and_a_wildcard_setting(tmp_path: Path) -> None:
    async with target(tmp_path, KEY, cors_origins="*") as found:
        page = {"Origin": "https://anywhere.example"}
        assert (await found.service.client.get("/v1/models", headers=page)).status_code == 401
        read = await found.service.client.get("/v1/models", headers=page | found.own_headers)
        assert (read.status_code, read.headers["access-control-allow-origin"]) == (200, "*")
        for refused in ({"Origin": "null"}, page | {"Host": "evil.example"}):
            assert (await found.service.client.get("/v1/models", headers=refused | found.own_headers)).is_error
