"""The pipe in uvloop, Open WebUI's event loop, which reports a lost connection with other errors than asyncio."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import uvloop

from tests.pipe.loader import PIPE

# A process of its own, so that it is as quick as the pipe. What the pipe is told depends on the microsecond at which a
# connection is torn: each is torn a little later than the last, up to a millisecond, and then from the beginning.
RESETTING_SERVER = """
import itertools, socket, struct, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
for wait_us in itertools.cycle(range(0, 800, 7)):
    connection, _ = listener.accept()
    torn_at = time.perf_counter() + wait_us / 1e6
    while time.perf_counter() < torn_at:
        pass
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
"""
ROUNDS = 300
AT_ONCE = 10


@contextlib.contextmanager
def a_server_that_resets_each_connection() -> Iterator[str]:
    """Yield the address of a server that tears each connection when it has just been made."""
    with subprocess.Popen([sys.executable, "-c", RESETTING_SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.kill()


@pytest.mark.slow
def test_connection_reset_at_once_raises_server_problem() -> None:
    async def ask(url: str) -> None:
        with pytest.raises(PIPE.ServerProblem):
            await PIPE.ServerClient(url, "key", PIPE.Timing()).forget_chat("chat")

    async def ask_often(url: str) -> None:
        for _ in range(ROUNDS):
            # At once, so that some hear of their connection and of its end in the same breath.
            await asyncio.gather(*(ask(url) for _ in range(AT_ONCE)))

    with a_server_that_resets_each_connection() as url:
        uvloop.run(ask_often(url))
