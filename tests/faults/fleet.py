"""The servers: started, killed, stopped and started again; which of them runs what, from what they log."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.balancer import Balancer
from tests.faults.engines import Engine
from tests.processes import Command, preload, start

AGENT = str(Path(__file__).with_name("shop_agent.py"))
FRAMEWORKS = ("agents", "agno.agent", "agno.models.openai", "langchain.agents", "langchain_openai", "pydantic_ai")


@dataclass
class Server:
    """One of the servers, in one life after another.

    `owned` are the runs that it goes on with, and of each how many servers have had it; `log` gets what it says.
    """

    number: int
    folder: Path
    settings: Mapping[str, str]
    log: Path
    balancer: Balancer
    owned: dict[str, int] = field(default_factory=dict)
    _process: Command | None = None
    _reading: asyncio.Task[None] | None = None
    _port: "asyncio.Future[int]" = field(init=False)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port.result()

    @property
    def name(self) -> str:
        return f"server {self.number}"

    async def start(self) -> None:
        """Start it, and send it connections once it listens."""
        self._port = asyncio.get_running_loop().create_future()
        self.folder.mkdir(exist_ok=True)
        self._process = await asyncio.to_thread(start, self.folder, "serve", **self.settings)
        self._process.stdout.close()
        reader = asyncio.StreamReader(limit=2**20)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stderr
        )
        self._reading = asyncio.create_task(self._read_log(reader))
        self.balancer.add(self.name, await self._port)

    async def end(self, number: signal.Signals) -> None:
        """End it by a signal, and return when it is gone."""
        self.signal(number)
        assert self._process
        assert self._reading
        if number == signal.SIGKILL:
            self.balancer.drop(self.name)
        await asyncio.to_thread(self._process.wait)
        self.balancer.drop(self.name)
        await self._reading
        self.owned.clear()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process
        self._process.send_signal(number)

    async def _read_log(self, reader: asyncio.StreamReader) -> None:
        with self.log.open("ab") as kept:
            while line := await reader.readline():
                kept.write(line)
                kept.flush()
                with suppress(ValueError):
                    self._notice(json.loads(line))
        if not self._port.done():
            self._port.set_exception(AssertionError(f"{self.name} ended before it listened: see {self.log}"))

    def _notice(self, line: Mapping[str, object]) -> None:
        match line:
            case {"event": "listening", "url": str(url)}:
                self._port.set_result(int(url.rsplit(":", 1)[1]))
            case {"event": "run_started", "run_id": str(run_id)}:
                self.owned[run_id] = 1
            case {"event": "run_continued", "run_id": str(run_id), "losses": int(losses)}:
                self.owned[run_id] = losses + 1
            case {"event": "run_ended" | "run_left", "run_id": str(run_id)}:
                self.owned.pop(run_id, None)
            case _:
                pass


@asynccontextmanager
async def running(
    engine: Engine, balancer: Balancer, base: Path, settings: Mapping[str, str]
) -> AsyncIterator[list[Server]]:
    """All servers of an engine, until the end."""
    servers = [
        Server(
            number,
            engine.folder(number),
            {**settings, **engine.settings(number), "AGENTS": AGENT},
            base / f"server{number}.log",
            balancer,
        )
        for number in range(engine.servers)
    ]
    preload(*FRAMEWORKS)
    # One after the other: the first makes the tables.
    for server in servers:
        await server.start()
    try:
        yield servers
    finally:
        for server in servers:
            with suppress(ProcessLookupError, AssertionError):
                await server.end(signal.SIGKILL)
