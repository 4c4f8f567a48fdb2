"""The servers that stand beside each other on one agent of Agno: each a process of its own, asked over HTTP."""

import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from service import free_port
from tests.bench.agno_servers.definition import AGENT
from tests.bench.environments import agentos_python
from tests.bench.served import UNLIMITED, start
from tests.bench.size import Size
from tests.processes import COMMAND, environment

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Contender:
    """A server to be started: `command` in `environment`; `path` is where a run is asked for."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    path: str

    @contextmanager
    def running(self, folder: Path, model: str) -> Iterator["Running"]:
        """The server, up and listening, its agent's model at the address `model`."""
        port = free_port()
        own = {"BENCH_PORT": str(port), "BENCH_MODEL": model, "PYTHONPATH": str(ROOT)}
        variables = {**environment(folder, **UNLIMITED, PORT=str(port)), **own, **self.environment}
        url = f"http://127.0.0.1:{port}"
        process = start(self.command, folder, variables, f"{url}/health")
        try:
            yield Running(self.name, url + self.path, process.pid)
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs."""

    name: str
    url: str
    pid: int
    client: httpx.AsyncClient = field(
        default_factory=lambda: httpx.AsyncClient(timeout=None, trust_env=False, limits=httpx.Limits())
    )

    @property
    def resident_kib(self) -> int:
        """What the process has in memory."""
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(self.pid)], check=True, capture_output=True, text=True)
        return int(told.stdout)

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """The stream of a new chat's first run, in pieces as they come."""
        chat = str(uuid4())
        said = [{"role": "user", "content": "Tell it."}]
        asked: dict[str, Any] = {"json": {"agent": AGENT, "chat_id": chat, "message_id": "m", "messages": said}}
        if not self.url.endswith("/v1/runs"):
            asked = {"data": {"message": "Tell it.", "stream": "true", "session_id": chat}}
        async with self.client.stream("POST", self.url, **asked) as response:
            if response.status_code != 200:
                raise AssertionError(f"{self.name} answered {response.status_code}: {await response.aread()!r}")
            # Kept here: an iterator that nobody holds closes its connection.
            pieces = response.aiter_raw()
            yield pieces


def contenders(size: Size) -> list[Contender]:
    """Callboard, AgentOS as it is without a database, and with one; all on the same releases of what they share."""
    agents = ROOT / "tests" / "bench" / "agno_servers" / "callboards.py"
    ours = {"CALLBOARD_AGENTS": str(agents), "CALLBOARD_LOG_LEVEL": "warning"}
    found = [Contender("Callboard", [*COMMAND, "serve"], ours, "/v1/runs")]
    if python := agentos_python(size):
        theirs = [str(python), "-m", "tests.bench.agno_servers.agentos"]
        path = f"/agents/{AGENT}/runs"
        found += [
            Contender("AgentOS", theirs, {}, path),
            Contender("AgentOS with SQLite", theirs, {"BENCH_DATABASE": "agentos.db"}, path),
        ]
    return found
