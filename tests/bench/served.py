"""Servers as processes of their own, real `callboard serve`, and what they and their stores take of the machine."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from redis import Redis

from callboard_protocol import Message
from service import answers, free_port
from tests.bench.report import milliseconds
from tests.processes import COMMAND, environment
from tests.serving import numbered, request
from tests.storage.postgres import throw_away_cluster
from tests.storage.redis_servers import throw_away_redis

AGENTS = Path(__file__).with_name("scale_agents.py")
MIB = 2**20
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
UNLIMITED = dict.fromkeys(("MAX_RUNS", "MAX_USER_RUNS", "MAX_CONNECTIONS"), "5000")
"""Settings of servers whose limits are not measured."""
START_SECONDS = 60.0
LOG_CHARS = 2_000
POLL_SECONDS = 0.05
AT_ONCE = 32
"""Connections that are opened at one time: of those that say nothing yet a server keeps 64 of an address."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, and those that it has started."""

    pid: int

    @property
    def processor_seconds(self) -> float:
        """What it has taken so far, with its children, those that have ended too."""
        seconds = self._read_seconds(self.pid, 4)
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            # One that ends now is counted with those that have.
            with suppress(FileNotFoundError, ProcessLookupError):
                seconds += self._read_seconds(int(pid), 2)
        return seconds

    @property
    def resident_mib(self) -> float:
        """What it has in memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * PAGE_BYTES / MIB

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
        """The answer to a request, as it comes; raises `AssertionError` where it is refused."""
        async with AsyncExitStack() as answering:
            async with self._opening:
                response = await answering.enter_async_context(self.client.stream(method, path, json=body))
            if response.status_code != 200:
                raise AssertionError(f"{response.status_code}: {await response.aread()!r}")
            yield response


def run_body(agent: str, number: int, count: int) -> dict[str, object]:
    """The body of a run of `scale_agents`: `count` pieces, or calls."""
    asked = request(agent=agent, run_id=f"run-{number}", messages=[{"role": "user", "content": str(count)}])
    return {**asked, "chat_id": f"chat-{number}", "message_id": "message"}


@dataclass(slots=True)
class Heard:
    """What listeners heard: the seconds from the agent until they had it, of each piece of text."""

    seconds: list[float] = field(default_factory=list)

    async def run(self, server: Served, number: int, pieces: int, has_begun: asyncio.Event) -> None:
        """Start a run, and listen to its end."""
        async with server.asked("POST", "/v1/runs", run_body("paced", number, pieces)) as response:
            has_begun.set()
            await self._listen(response)

    async def follow(self, server: Served, number: int, has_begun: asyncio.Event) -> None:
        """Listen to a run from its beginning, at another server than its own."""
        await has_begun.wait()
        async with server.asked("GET", f"/v1/runs/run-{number}/events") as response:
            await self._listen(response)

    async def _listen(self, response: httpx.Response) -> None:
        async for _, event in numbered(response):
            if isinstance(event, Message):
                now = time.monotonic()
                self.seconds += [now - float(said) for said in event.content.split()]

    def share(self, share: float) -> str:
        """Return a percentile, in ms."""
        return milliseconds(sorted(self.seconds)[round(share * (len(self.seconds) - 1))]) if self.seconds else "–"


@dataclass(frozen=True, slots=True)
class Engine:
    """A store that servers share: their settings, and its own processes."""

    settings: dict[str, str]
    processes: list[Process]

    @property
    def processor_seconds(self) -> float:
        """What all of it has taken so far; 0 where it is a file, which the servers write themselves."""
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


@contextmanager
def serving(folder: Path, engine: Engine, count: int) -> Iterator[list[Served]]:
    """So many servers of one store."""
    settings = {**UNLIMITED, **engine.settings, "AGENTS": str(AGENTS), "LOG_LEVEL": "warning"}
    with ExitStack() as running:
        # One after the other: the first makes the tables.
        yield [running.enter_context(_serving(folder / str(number), settings)) for number in range(count)]


@contextmanager
def _serving(folder: Path, settings: dict[str, str]) -> Iterator[Served]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = start([*COMMAND, "serve"], folder, environment(folder, **settings, PORT=str(port)), f"{url}/health")
    try:
        limits = httpx.Limits(max_keepalive_connections=0)
        yield Served(
            Process(process.pid), httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False)
        )
    finally:
        process.kill()
        process.wait()


def start(command: Sequence[str], folder: Path, variables: Mapping[str, str], health: str) -> "subprocess.Popen[bytes]":
    """Start a server in this folder and return once it answers at `health`; its output goes into the file `log` there.

    Raises `AssertionError` with the end of the log if the server ends, or takes longer than `START_SECONDS`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "log"
    with path.open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + START_SECONDS
    while not answers(health):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise AssertionError(f"{command!r} did not answer at {health}:\n{path.read_text()[-LOG_CHARS:]}")
        time.sleep(POLL_SECONDS)
    return process
