"""All request bodies share one memory budget, and ended requests and runs release their part."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import RunContext
from callboard.http.body import BODIES_AT_ONCE, VALUE_BYTES
from callboard_protocol import Event, Message
from tests.serving import ScriptedAgent, Service, request, serving

MEBIBYTE = 2**20
TEXT = "x" * (MEBIBYTE - 20_000)


class Waiting:
    """An agent whose runs last until the test ends them."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.agent = ScriptedAgent(self._script)

    async def _script(self, context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="hello")
        await self.goes_on.wait()


def large(**fields: Any) -> dict[str, Any]:
    return request(messages=[{"role": "user", "content": TEXT}], **fields)


async def start(service: Service, body: dict[str, Any]) -> "asyncio.Task[list[Event]]":
    """Start a run and wait for its first text."""
    started = asyncio.Event()

    async def listen() -> list[Event]:
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200
            async for chunk in response.aiter_bytes():
                if b"hello" in chunk:
                    started.set()
        return []

    task = asyncio.create_task(listen())
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not started.is_set():
        await task
    return task


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", large()),
        ("/v1/chat/completions", {"model": "scripted", "messages": [{"role": "user", "content": TEXT}]}),
        ("/v1/responses", {"model": "scripted", "input": TEXT}),
        ("/v1/runs/other/input", {"request_id": "q", "value": TEXT}),
    ],
)
async def test_request_gets_503_while_running_runs_use_the_body_budget(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    waiting = Waiting()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        runs = [await start(service, large(run_id=f"r{number}")) for number in range(BODIES_AT_ONCE)]
        refused = await service.client.post(path, json=body)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["error"]["code"] == "server_busy"
        assert "CALLBOARD_MAX_REQUEST_MIB" in refused.json()["error"]["message"]
        # Others are answered all the same, and a small question has its place.
        assert (await service.client.get("/v1/models")).status_code == 200
        assert (await service.client.post("/v1/runs/other/cancel")).status_code == 404
        waiting.goes_on.set()
        await asyncio.gather(*runs)
        again = await service.client.post(path, json=body)
        assert again.status_code in (200, 404)
        assert "server_busy" not in again.text


@pytest.mark.parametrize(
    "body",
    [
        {"agent": "nobody", "messages": [{"role": "user", "content": TEXT}]},
        {"agent": "scripted", "messages": [{"role": "nobody", "content": TEXT}]},
        {"agent": "scripted", "messages": [[[]]] * 50_000},
    ],
)
async def test_refused_request_releases_its_memory(tmp_path: Path, body: dict[str, Any]) -> None:
    waiting = Waiting()
    waiting.goes_on.set()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        for _ in range(BODIES_AT_ONCE + 2):
            assert (await service.client.post("/v1/runs", json=body)).status_code in (404, 413, 422, 503)
        await service.events(large())


async def test_body_with_many_values_counts_their_parsed_size(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        many = request(messages=[{"role": "user", "content": [{}] * 40_000}])
        assert len(json.dumps(many)) < 40_000 * VALUE_BYTES / 50
        run = await start(service, many)
        refused = await service.client.post("/v1/runs", json=many)
        assert refused.status_code == 503
        waiting.goes_on.set()
        await run


async def test_attaching_to_a_run_does_not_count_the_body_twice(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        body = large(run_id="a")
        runs = [await start(service, body) for _ in range(BODIES_AT_ONCE + 2)]
        waiting.goes_on.set()
        await asyncio.gather(*runs)


async def test_client_that_disconnects_during_its_body_releases_its_memory(tmp_path: Path) -> None:
    waiting = Waiting()
    waiting.goes_on.set()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        url = service.client.base_url
        for _ in range(2 * BODIES_AT_ONCE + 2):
            _, writer = await asyncio.open_connection(url.host, url.port)
            head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {MEBIBYTE}")
            writer.write("\r\n".join(("POST /v1/runs HTTP/1.1", *head, "", "")).encode())
            writer.write(b'"' + b"x" * (MEBIBYTE // 2))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await service.events(large())
