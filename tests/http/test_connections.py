"""Connections that say nothing, or never end what they say, do not stop the server."""

import asyncio
import contextlib
import resource
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from callboard._http.connections import (
    HEADER_SECONDS,
    MAX_SILENT_OF_ADDRESS,
    ConnectionBounds,
    build_protocol,
    compute_bounds,
    listen,
)
from tests.processes import COMMAND, address, environment

HALF = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-"


@contextlib.contextmanager
def serving(folder: Path, descriptors: int, **settings: str) -> Iterator[str]:
    """The address of a server that may open so many files, half of which it is told of."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors // 2, descriptors))

    process = subprocess.Popen(
        [*COMMAND, "serve"],
        cwd=folder,
        env=environment(folder, **settings),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    assert process.stderr is not None
    try:
        yield address(process.stderr)
    finally:
        process.kill()
        process.communicate()


def connect(url: str, count: int, said: bytes) -> list[socket.socket]:
    place = httpx.URL(url)
    opened = []
    for _ in range(count):
        connection = socket.create_connection((place.host, place.port or 0))
        connection.sendall(said)
        opened.append(connection)
    return opened


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", HALF])
def test_300_half_open_connections_without_a_key_do_not_stop_the_server(tmp_path: Path, said: bytes) -> None:
    with serving(tmp_path, 256, API_KEY="a-long-secret-key", MAX_RUNS="20") as url:
        with contextlib.ExitStack() as opened:
            for connection in connect(url, 300, said):
                opened.enter_context(connection)
            headers = {"Authorization": "Bearer a-long-secret-key"}
            body = {"agent": "demo", "messages": [{"role": "user", "content": "picture"}]}
            # Each over a connection of its own.
            for _ in range(3):
                assert httpx.get(f"{url}/health", timeout=None).status_code == 200
                answer = httpx.post(f"{url}/v1/runs", json=body, headers=headers, timeout=None)
                assert '"type":"done"' in answer.text


async def hello(scope: dict[str, object], receive: object, send: object) -> None:
    """Answers everything once it was read."""
    assert callable(receive)
    assert callable(send)
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@contextlib.asynccontextmanager
async def answering(bounds: ConnectionBounds) -> AsyncIterator[int]:
    """The port of a server with these bounds."""
    config = uvicorn.Config(hello, http=build_protocol(bounds), log_config=None, lifespan="off", timeout_keep_alive=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serve = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serve


@pytest.mark.parametrize("said", [b"", HALF, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + HALF])
async def test_headers_that_do_not_end_end_the_connection(said: bytes) -> None:
    async with answering(ConnectionBounds(100, 100, header_seconds=0.2)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with contextlib.suppress(ConnectionResetError):
            assert (await reader.read()).count(b"200 OK") == said.count(b"GET")
        writer.close()


async def test_a_request_may_take_longer_than_its_headers() -> None:
    async with answering(ConnectionBounds(100, 100, header_seconds=0.2)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n1")
        closed = asyncio.create_task(reader.read())
        # Longer than the bound: what it is to show is that nothing happens.
        assert not (await asyncio.wait({closed}, timeout=0.5))[0]
        writer.write(b"2")
        assert b"200 OK" in await closed
        writer.close()


async def test_more_connections_than_there_may_be_are_told_so_and_places_are_given_back() -> None:
    asked = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\n"
    async with answering(ConnectionBounds(total=3, of_address=2)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(asked)
        refused, refused_writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"503" in await refused.read()
        refused_writer.close()
        for reader, writer in held:
            writer.write(b"x")
            assert b"200 OK" in await reader.read()
            writer.close()
            await writer.wait_closed()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked + b"x")
        assert b"200 OK" in await reader.read()
        writer.close()


async def open_silently(port: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Twice as many connections as may be silent."""
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MAX_SILENT_OF_ADDRESS)]


async def test_a_client_may_open_many_connections_in_one_go() -> None:
    async with answering(ConnectionBounds(total=500, of_address=500)) as port:
        opened = await open_silently(port)
        for _, writer in opened:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        for reader, writer in opened:
            assert b"200 OK" in await reader.read()
            writer.close()


async def test_of_silent_connections_the_oldest_makes_place() -> None:
    async with answering(ConnectionBounds(total=500, of_address=500, silent_seconds=0)) as port:
        opened = await open_silently(port)
        for reader, writer in opened[:MAX_SILENT_OF_ADDRESS]:
            async with asyncio.timeout(HEADER_SECONDS / 2):
                assert await reader.read() == b""
            writer.close()
        for reader, writer in opened[MAX_SILENT_OF_ADDRESS:]:
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await reader.read()
            writer.close()


def test_a_connection_sends_small_writes_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_descriptors_are_kept_back_for_runs() -> None:
    wanted = {"max_connections": 1000, "max_of_address": 500}
    assert compute_bounds(65_536, max_runs=100, **wanted) == ConnectionBounds(1000, 500)
    assert compute_bounds(512, max_runs=100, **wanted) == ConnectionBounds(120, 120)
    assert compute_bounds(100, max_runs=100, **wanted) == ConnectionBounds(16, 16)
