"""Silent connections and endless requests do not block the server."""

import asyncio
import contextlib
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from callboard.http.listening import compute_connection_limit, listen
from tests import processes
from tests.fakes.openai_server import OpenAIServer, chunks, finish, text
from tests.processes import COMMAND, address, environment

HALF = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-"
AGENT = str(Path(__file__).parents[1] / "storage" / "careful_agent.py")
KEY = {"Authorization": "Bearer a-long-secret-key"}


@pytest.fixture
def descriptors() -> Iterator[int]:
    """The descriptors that this process, and a server that it starts, may have at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def serving_with_few_descriptors(folder: Path, hard: int, **settings: str) -> Iterator[tuple[str, IO[str]]]:
    """A server that starts with a limit of 128 open files, which it may raise; its address and its log."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))

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
        yield address(process.stderr), process.stderr
    finally:
        process.kill()
        process.communicate()


def connect(url: str, count: int, said: bytes) -> contextlib.ExitStack:
    place = httpx.URL(url)
    opened = contextlib.ExitStack()
    for _ in range(count):
        connection = opened.enter_context(socket.create_connection((place.host, place.port or 0)))
        connection.sendall(said)
    return opened


@pytest.mark.slow
@pytest.mark.parametrize(("said", "count"), [(b"", 300), (HALF, 4000)], ids=["silent", "half a request"])
async def test_half_open_connections_do_not_block_the_server_or_its_runs(
    tmp_path: Path, descriptors: int, said: bytes, count: int
) -> None:
    async with OpenAIServer([chunks(text("Hello."), finish("stop"))] * 3) as model:
        settings = {"AGENTS": AGENT, "MODEL_BASE_URL": model.base_url, "MODEL": "m", "API_KEY": "a-long-secret-key"}
        with serving_with_few_descriptors(tmp_path, descriptors, **settings) as (url, _):
            with await asyncio.to_thread(connect, url, count, said):
                body = {"agent": "careful", "messages": [{"role": "user", "content": "Hello"}]}
                for _ in range(3):
                    # Each over a connection of its own, and the server's to the model is one more.
                    async with httpx.AsyncClient(base_url=url, headers=KEY, timeout=None) as client:
                        assert (await client.get("/health")).status_code == 200
                        answer = await client.post("/v1/runs", json=body)
                        assert '"content":"Hello."' in answer.text
                        assert '"type":"done"' in answer.text


def test_requests_over_the_limit_of_connections_get_a_503_until_a_connection_ends(tmp_path: Path) -> None:
    with processes.serving(tmp_path, MAX_CONNECTIONS="16") as (url, _):
        with connect(url, 16, HALF):
            assert httpx.get(f"{url}/health").status_code == 503
        while (answer := httpx.get(f"{url}/health")).status_code == 503:
            # The server has not seen the ends of all connections yet.
            pass
        assert answer.status_code == 200


def test_headers_of_more_than_16_kib_are_refused(tmp_path: Path) -> None:
    with processes.serving(tmp_path) as (url, _):
        place = httpx.URL(url)
        with socket.create_connection((place.host, place.port or 0)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nX-Long: " + b"x" * 17 * 1024)
            with connection.makefile("rb") as answer:
                assert b" 400 " in answer.readline()


def test_a_connection_sends_small_writes_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_descriptors_are_kept_back_for_runs() -> None:
    assert compute_connection_limit(65_536, max_connections=1000, max_runs=100) == 1000
    assert compute_connection_limit(512, max_connections=1000, max_runs=100) == 120
    assert compute_connection_limit(100, max_connections=1000, max_runs=100) == 16
