"""Servers as their makers publish them on PyPI and npm."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.server import RunningServer
from tests.skills.mcp.conftest import QUICK, Log, Played

pytestmark = pytest.mark.timeout(600)  # the first of them installs the servers


@pytest.fixture
def far_server(node_servers: Path, free_port: int) -> Callable[[], AbstractContextManager[str]]:
    """Start the reference server over HTTP, and yield its address once it listens."""
    environment = {"PATH": os.environ["PATH"], "PORT": str(free_port)}
    command = [str(node_servers / "mcp-server-everything"), "streamableHttp"]

    @contextmanager
    def start() -> Iterator[str]:
        pipe = subprocess.PIPE
        joined = subprocess.STDOUT
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=joined, text=True) as process:
            assert process.stdout is not None
            try:
                assert any("listening on port" in line for line in process.stdout)
                yield f"http://127.0.0.1:{free_port}/mcp"
            finally:
                process.kill()

    return start


@pytest.mark.needs("npm", "downloads")
async def test_the_reference_server_over_http_also_after_a_restart_in_which_it_forgot_us(
    far_server: Callable[[], AbstractContextManager[str]], log: Log
) -> None:
    with far_server() as url:
        pass
    every = Played(RunningServer(ServerDeclaration("every", url=url), *QUICK))
    async with every.lifespan():
        with far_server():
            await log.until("mcp_server_ready")
            assert (await every.call("echo", message="hi")).text == "Echo: hi"
            await every.call("trigger-long-running-operation", duration=0.2, steps=2)
            assert [report.progress for report in every.reports] == [50, 100]
        with far_server():
            # Refused because of the unknown session, and repeated in a new one.
            assert (await every.call("echo", message="hi")).text == "Echo: hi"
