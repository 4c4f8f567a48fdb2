"""Every invalid request gets an error with advice."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard.agents import RunContext
from callboard_protocol import Event, Message
from tests.serving import ScriptedAgent, request, serving


async def hello(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="hello")


AGENT = ScriptedAgent(hello)


async def test_health_returns_version_and_protocol(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        response = await service.client.get("/health")
        assert response.status_code == 200
        assert response.json()["status"] == "ok"
        assert response.json()["protocol"] == 1


@pytest.mark.parametrize("header", [None, "Bearer", "Basic key", "Bearer kez", "Bearer schlüssel"])
async def test_only_health_answers_without_the_right_key(tmp_path: Path, header: str | None) -> None:
    async with serving(tmp_path, AGENT, api_key="key") as service:
        headers = {b"Authorization": header.encode()} if header else {}
        for method, path in [("GET", "/v1/models"), ("POST", "/v1/runs"), ("GET", "/nowhere")]:
            response = await service.client.request(method, path, headers=headers)
            assert response.status_code == 401
            assert "CALLBOARD_API_KEY" in response.json()["error"]["message"]
        assert (await service.client.get("/health", headers=headers)).status_code == 200
        assert (await service.client.get("/v1/models", headers={"Authorization": "bearer key"})).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 422, "body: Invalid JSON"),
        (b"{}", 422, "agent: Field required; messages: Field required"),
        (b'{"agent": "scripted", "messages": [{"role": "wizard"}]}', 422, "messages.0.role"),
        (b'{"agent": "nobody", "messages": [{"role": "user", "content": "hi"}]}', 404, "scripted"),
        (b" " * (1024 * 1024 + 1), 413, "CALLBOARD_MAX_REQUEST_MIB"),
    ],
)
async def test_a_request_that_cannot_be_met_says_why(tmp_path: Path, body: bytes, status: int, words: str) -> None:
    async with serving(tmp_path, AGENT, max_request_mib=1) as service:
        response = await service.client.post("/v1/runs", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == status
        assert words in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nowhere", 404, "/nowhere"),
        ("GET", "/v1/runs", 405, "Method Not Allowed"),
        ("GET", "/v1/runs/none/events", 404, "there is no run 'none'"),
        ("POST", "/v1/runs/none/cancel", 404, "there is no run 'none'"),
        ("GET", "/v1/runs/r/events?after=-1", 422, "must be the number of an event"),
        ("GET", "/v1/runs/r/events?after=x", 422, "must be the number of an event"),
    ],
)
async def test_a_route_that_is_used_wrongly_says_so_in_json(
    tmp_path: Path, method: str, path: str, status: int, words: str
) -> None:
    async with serving(tmp_path, AGENT) as service:
        await service.client.post("/v1/runs", json=request(run_id="r"))
        response = await service.client.request(method, path)
        assert response.status_code == status
        assert words in response.json()["error"]["message"]


TOO_MANY: list[tuple[list[dict[str, object]], str]] = [
    ([{"role": "user", "content": [{}] * 100_000}], "more than 100000 JSON values"),
    ([{"role": "assistant", "content": "\n</details>" * 10_001}], "more than 10000 tool calls"),
    ([{"role": "user", "content": "a"}] * 10_001, "messages"),
    ([{"role": "user", "content": "\n" * 2_000_001}], "backslashes"),
]


async def test_a_request_of_too_many_parts_says_so_to_a_client_that_is_still_sending(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        for messages, words in TOO_MANY:
            response = await service.client.post("/v1/runs", json=request(messages=messages))
            assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
            assert words in response.json()["error"]["message"]


async def test_commas_and_brackets_in_strings_are_not_counted_as_values(tmp_path: Path) -> None:
    text = 'a, "b", [c], {d}, \\ ' * 50_000
    async with serving(tmp_path, AGENT) as service:
        response = await service.client.post("/v1/runs", json=request(messages=[{"role": "user", "content": text}]))
        assert response.status_code == 200


HALVES = r"x \ud83d \\ud83d \ud83d\ude00 \uDE00"


async def test_halves_of_emoji_are_replaced_and_the_rest_is_read_as_it_is(tmp_path: Path) -> None:
    said: list[object] = []

    async def listen(context: RunContext) -> AsyncIterator[Event]:
        said.append(context.messages[-1]["content"])
        yield Message(content="I see.")

    messages = '"messages": [{"role": "user", "content": "%s"}]'
    async with serving(tmp_path, ScriptedAgent(listen, "listener")) as service:
        for path, body in (
            ("/v1/runs", f'{{"agent": "listener", {messages}}}'),
            ("/v1/chat/completions", f'{{"model": "listener", {messages}}}'),
            ("/v1/responses", '{"model": "listener", "input": "%s"}'),
        ):
            headers = {"Content-Type": "application/json"}
            assert (await service.client.post(path, content=body % HALVES, headers=headers)).status_code == 200
    assert said == ["x \ufffd \\ud83d \U0001f600 \ufffd"] * 3


async def test_a_compressed_body_is_refused_in_words(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        body = gzip.compress(json.dumps(request()).encode())
        response = await service.client.post("/v1/runs", content=body, headers=headers)
        assert response.status_code == 415
        assert "without Content-Encoding" in response.json()["error"]["message"]


async def test_request_with_two_lengths_is_refused_and_cannot_smuggle_another(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        url = service.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
        hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(f"{head}0\r\n\r\n{hidden}".encode())
        answers = await reader.read()
        writer.close()
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1
