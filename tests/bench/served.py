"""Servers as processes of their own, and what they and their stores take of the machine."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from redis import Redis

from tests import processes
from tests.storage.postgres import throw_away_cluster
from tests.storage.redis_servers import throw_away_redis

AGENTS = str(Path(__file__).with_name("agents.py"))
TICKS = os.sysconf("SC_CLK_TCK")
UNLIMITED = dict.fromkeys(("MAX_RUNS", "MAX_USER_RUNS", "MAX_CONNECTIONS"), "5000")
"""Settings of servers whose limits are not measured."""
AT_ONCE = 32
"""Connections that are opened at one time: a server keeps 64 of an address that have sent nothing yet."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, and those that it has started."""

    pid: int

    @property
    def processor_seconds(self) -> float:
        """What it has taken so far, with its children, also those that have ended."""
        seconds = self._read_seconds(self.pid, 4)
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            # One that ends now is counted with those that have.
            with suppress(FileNotFoundError, ProcessLookupError):
                seconds += self._read_seconds(int(pid), 2)
        return seconds

    def _read_seconds(self, pid: int, fields: int) -> float:
        """Return the sum of user and system time, and with four fields that of children that have ended."""
        # After the name, which may hold anything, comes the state, the third field.
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, stat[11 : 11 + fields])) / TICKS


@dataclass(frozen=True, slots=True)
class Served:
    """A server, and a client for it."""

    process: Process
    client: httpx.AsyncClient
    _opening: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, AT_ONCE))

    @asynccontextmanager
    async def asked(self, method: str, path: str, body: object = None) -> AsyncIterator[httpx.Response]:
        """The answer to a request, as it comes; raises `AssertionError` if it is refused."""
        async with AsyncExitStack() as answering:
            async with self._opening:
                response = await answering.enter_async_context(self.client.stream(method, path, json=body))
            if response.status_code != 200:
                raise AssertionError(f"{response.status_code}: {await response.aread()!r}")
            yield response


@dataclass(frozen=True, slots=True)
class Engine:
    """A store that servers share: their settings, and its own processes."""

    settings: Mapping[str, str]
    processes: list[Process]

    @property
    def processor_seconds(self) -> float:
        """What all of it has taken so far; 0 for a file, which the servers write themselves."""
        return sum(process.processor_seconds for process in self.processes)


@contextmanager
def sqlite(folder: Path) -> Iterator[Engine]:
    yield Engine({"DATABASE_URL": f"sqlite:///{folder / 'shared.db'}"}, [])


@contextmanager
def postgresql(_: Path) -> Iterator[Engine]:
    with throw_away_cluster() as socket:
        pid = int((socket / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        url = f"postgresql+asyncpg://postgres@/postgres?host={socket}"
        yield Engine({"DATABASE_URL": url}, [Process(pid)])


@contextmanager
def redis(folder: Path) -> Iterator[Engine]:
    with postgresql(folder) as database, throw_away_redis() as server, Redis.from_url(server.url) as asked:
        pid = asked.info("server")["process_id"]
        yield Engine({**database.settings, "REDIS_URL": server.url}, [*database.processes, Process(pid)])


ENGINES: Mapping[str, Callable[[Path], AbstractContextManager[Engine]]] = {
    "SQLite": sqlite,
    "PostgreSQL": postgresql,
    "PostgreSQL with Redis": redis,
}


@contextmanager
def serving(folder: Path, settings: Mapping[str, str], count: int = 1) -> Iterator[list[Served]]:
    """Run so many servers with the same settings."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as running:
        servers = []
        # One after the other: the first makes the tables.
        for number in range(count):
            server = processes.serving(folder / str(number), AGENTS=AGENTS, **UNLIMITED, **settings)
            url, command = running.enter_context(server)
            processes.discard(command.stderr)
            limits = httpx.Limits(max_keepalive_connections=0)
            client = httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False)
            servers.append(Served(Process(command.pid), client))
        yield servers
