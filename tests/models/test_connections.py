"""The model's endpoint over HTTP: retries, addresses, redirects, proxies, certificates, and the use of connections."""

import asyncio
import socket
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from callboard._version import __version__
from callboard.errors import ModelError, ModelRateLimited, ModelTimeout, ModelUnreachable
from callboard.models import (
    Finish,
    ModelDelta,
    ModelRequest,
    OpenAICompatible,
    TextDelta,
    openai_compatible,
    retries,
)
from callboard.models.endpoint_stream import send
from callboard.tls import tls_context
from tests.fakes.openai_server import Answer, OpenAIServer, Raw, Refusal, Silence, chunks, finish, text
from tests.skills.web.sites import Heard, Reply, Site, answer, redirect

KEY = "sk-very-secret-key"
ASK = ModelRequest([{"role": "user", "content": "hi"}])
HI = chunks(text("hi"), finish("stop"))
HI_DELTAS = [TextDelta("hi"), Finish("stop")]
COMPLETION = answer({"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]})
AT_ONCE = {"retry-after-ms": "1"}


async def ask(base_url: str, **options: Any) -> list[ModelDelta]:
    model = OpenAICompatible(base_url, **{"api_key": KEY, "model": "m", **options})
    try:
        return [delta async for delta in model.stream(ASK)]
    finally:
        await model.aclose()


# ------------------------------------------------------------------------------------------------- retries


async def test_temporary_failure_is_retried_twice() -> None:
    script: list[Answer] = [Refusal(429, headers=AT_ONCE), Refusal(503, headers=AT_ONCE), HI]
    async with OpenAIServer(script) as server:
        assert await ask(server.base_url) == HI_DELTAS
    assert len(server.requests) == 3


async def test_the_last_failure_is_the_error() -> None:
    script = [Refusal(503, f"failure {number}", AT_ONCE) for number in range(1, 5)]
    async with OpenAIServer(script) as server:
        with pytest.raises(ModelError, match="answered 503: failure 3"):
            await ask(server.base_url)


@asynccontextmanager
async def dropping(connections: int) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield the address of an endpoint that closes a number of connections after their requests, and the requests."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b'"hi"}]'))
        if len(asked) > connections:
            body = COMPLETION.body
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asked


async def test_connection_lost_before_answer_is_retried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_DELAY_SECONDS", 0.001)
    for connections in (2, 9):
        async with dropping(connections) as (base_url, asked):
            if connections == 2:
                assert await ask(base_url) == HI_DELTAS
            else:
                with pytest.raises(ModelUnreachable, match="Server disconnected without sending a response"):
                    await ask(base_url)
        assert len(asked) == 3


async def test_retry_delay_beyond_timeout_fails_at_once_with_reason() -> None:
    async with OpenAIServer([Refusal(429, "one request a minute", {"Retry-After": "60"}), HI]) as server:
        async with asyncio.timeout(19):
            with pytest.raises(ModelRateLimited, match="one request a minute"):
                await ask(server.base_url, timeout_seconds=20)
    assert len(server.requests) == 1


async def test_connect_timeout_names_endpoint_and_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openai_compatible, "CONNECT_TIMEOUT_SECONDS", 0.1)
    # Linux takes one more than the backlog, and leaves others without an answer.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        with socket.create_connection(full.getsockname()):
            with pytest.raises(ModelTimeout, match=r"did not accept a connection within 0\.1 s"):
                await ask(f"http://127.0.0.1:{full.getsockname()[1]}/v1", max_retries=0)


@pytest.mark.parametrize("error", [AttributeError("getpeername"), RuntimeError("the handler is closed")])
async def test_connection_reset_at_start_is_connect_error_in_uvloop(error: Exception) -> None:
    """Of a few hundred connections that are reset at once, uvloop reports one so; `tests/pipe` has a real one."""

    def reset(_: httpx.Request) -> httpx.Response:
        raise error

    async with httpx.AsyncClient(transport=httpx.MockTransport(reset)) as client:
        with pytest.raises(httpx.ConnectError):
            await send(client, client.build_request("GET", "http://127.0.0.1:9/v1/models"))


# ------------------------------------------------------------------------------------- addresses and headers


@pytest.mark.parametrize(
    ("end", "target"),
    [
        ("/v1/", "/v1/chat/completions"),
        ("/a%2Fb/v1", "/a%2Fb/v1/chat/completions"),
        ("/v1?api-version=2026-01-01&x=%26", "/v1/chat/completions?api-version=2026-01-01&x=%26"),
    ],
)
async def test_path_is_appended_to_base_url_and_query_is_kept(end: str, target: str) -> None:
    async with Site(COMPLETION) as site:
        assert await ask(site.url + end) == HI_DELTAS
    assert [heard.target for heard in site.heard] == [target]


async def test_a_user_and_a_password_in_the_base_url_are_sent_as_basic_authentication() -> None:
    async with Site(COMPLETION) as site:
        assert await ask(f"http://me:pass%20word@127.0.0.1:{site.port}/v1", api_key=None) == HI_DELTAS
    kind, _, encoded = site.heard[0].headers["authorization"].partition(" ")
    assert (kind, b64decode(encoded)) == ("Basic", b"me:pass word")


async def test_user_agent_is_callboard_and_openai_variables_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Site(COMPLETION) as site, Site(COMPLETION) as other:
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        for name in ("API_KEY", "ORG_ID", "PROJECT_ID", "CUSTOM_HEADERS"):
            monkeypatch.setenv(f"OPENAI_{name}", "X-Name: of somebody else")
        assert await ask(site.url, api_key=None) == HI_DELTAS
    assert other.connections == 0
    [heard] = site.heard
    assert heard.headers["user-agent"] == f"callboard/{__version__}"
    assert heard.headers["accept-encoding"] == "identity"
    assert "authorization" not in heard.headers
    assert "somebody else" not in str(heard.headers)


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-ключ"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ModelError, match="CALLBOARD_MODEL_API_KEY") as raised:
        OpenAICompatible("http://127.0.0.1:9/v1", api_key=key)
    assert "sk-" not in str(raised.value)


async def test_request_that_is_not_json_is_not_endpoint_failure() -> None:
    async with OpenAIServer([HI]) as server:
        model = OpenAICompatible(server.base_url, model="m")
        with pytest.raises(ModelError, match="cannot be written as JSON") as raised:
            await anext(aiter(model.stream(ModelRequest(ASK.messages, options={"temperature": float("nan")}))))
        await model.aclose()
    assert type(raised.value) is ModelError
    assert server.requests == []


# ------------------------------------------------------------------------------------- redirects and proxies


async def test_a_redirect_within_the_endpoint_is_followed_with_the_key_and_the_conversation() -> None:
    def script(heard: Heard) -> Reply:
        return redirect("/v2/chat/completions", 307) if heard.path.startswith("/v1") else COMPLETION

    async with Site(script) as site:
        assert await ask(f"{site.url}/v1") == HI_DELTAS
    first, second = site.heard
    assert second.path == "/v2/chat/completions"
    assert second.body == first.body != b""
    assert first.headers["authorization"] == second.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("credentials", ["", "me:password@"])
async def test_a_redirect_to_another_origin_is_followed_without_the_key(credentials: str) -> None:
    async with Site(COMPLETION) as other, Site(lambda _: redirect(f"{other.url}/v1", 308)) as site:
        assert await ask(f"http://{credentials}127.0.0.1:{site.port}/v1") == HI_DELTAS
    assert "authorization" in site.heard[0].headers
    assert "authorization" not in other.heard[0].headers
    assert KEY not in str(other.heard)


async def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Site(COMPLETION) as proxy, Site(COMPLETION) as site:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert await ask("http://endpoint.example/v1") == HI_DELTAS
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert await ask(site.url) == HI_DELTAS
    assert [heard.target for heard in proxy.heard] == ["http://endpoint.example/v1/chat/completions"]
    assert len(site.heard) == 1


# ------------------------------------------------------------------------------------------- certificates


@pytest.fixture
def fresh_tls() -> Iterator[None]:
    """Load the certificates within the test, and forget them afterwards."""
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@pytest.fixture
def tls_of_own_authority(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """The TLS context of a server, and the file of the authority that signed its certificate."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    return context, file


@pytest.mark.usefixtures("fresh_tls")
async def test_ssl_cert_file_adds_authority(
    monkeypatch: pytest.MonkeyPatch, tls_of_own_authority: tuple[ssl.SSLContext, Path]
) -> None:
    tls, file = tls_of_own_authority
    async with Site(COMPLETION, tls=tls) as site:
        with pytest.raises(ModelUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(site.url, max_retries=0)
        tls_context.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert await ask(site.url) == HI_DELTAS
    # The file is in the place of all others.
    assert tls_context().cert_store_stats()["x509_ca"] == 1


# --------------------------------------------------------------------------------- connections and bounds


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_connection_is_reused(is_streamed: bool) -> None:
    async with OpenAIServer(lambda _: HI if is_streamed else Raw([COMPLETION.body])) as server:
        model = OpenAICompatible(server.base_url, model="m")
        for _ in range(3):
            assert [delta async for delta in model.stream(ASK)] == HI_DELTAS
        await model.aclose()
    assert (len(server.requests), len(server.clients)) == (3, 1)


async def test_answer_ends_with_done_if_connection_stays_open() -> None:
    async with OpenAIServer([chunks(text("hi"), "[DONE]", ending="hang")]) as server:
        assert await ask(server.base_url, timeout_seconds=20) == [TextDelta("hi"), Finish(None)]


async def test_more_than_hundred_answers_stream_in_parallel() -> None:
    all_ask = asyncio.Event()

    def script(_: object) -> Answer:
        if len(server.requests) == 120:
            all_ask.set()
        return Silence()

    async with OpenAIServer(script) as server:
        model = OpenAICompatible(server.base_url, model="m")

        async def read() -> None:
            await anext(aiter(model.stream(ASK)))

        reading = [asyncio.create_task(read()) for _ in range(120)]
        await all_ask.wait()
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await model.aclose()


@pytest.mark.parametrize(
    ("reply", "error", "named"),
    [
        (Reply(b"<html>", headers={"Content-Type": "text/html"}), ModelError, "answered with a web page"),
        (Reply(b'{"data": ', ending="cut"), ModelError, "in the middle"),
        (Reply(b'{"error": "no such path"}', 404), ModelError, "answered 404: no such path"),
    ],
)
async def test_unreadable_list_of_models_is_error(reply: Reply, error: type[ModelError], named: str) -> None:
    async with Site(reply) as site:
        model = OpenAICompatible(site.url, api_key=KEY, max_retries=0)
        with pytest.raises(error) as raised:
            await model.list_names()
        await model.aclose()
    assert named in str(raised.value)
