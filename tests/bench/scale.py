"""The cost of storing every event, by the store; of several servers, of idle listeners, and of many calls.

The first part has servers and listeners in this process. In the others servers are processes of their own, and so are
their stores: the processor time of each is measured apart, without that of the listeners here.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from callboard.storage import Store
from callboard_protocol import Message
from tests import serving as in_process
from tests.bench import agents, served, story
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table, say
from tests.bench.served import ENGINES, UNLIMITED, Engine, Process, Served
from tests.serving import numbered, request, serving

LOGS: Mapping[Size, Sequence[str]] = {
    FULL: ("memory", *ENGINES),
    SMOKE: ("memory", "SQLite", "PostgreSQL with Redis"),
}
REPETITIONS = {FULL: 3, SMOKE: 1}
READ_RUNS = {FULL: 20, SMOKE: 2}
"""As many as one process has time for, listeners and all: delays are to be those of the log, and not of a queue."""
READ_PIECES = {FULL: 40, SMOKE: 3}

SHARED = {FULL: "PostgreSQL", SMOKE: "SQLite"}
"""The store of idle listeners."""
SERVERS = {FULL: ((1, 40), (2, 40), (4, 40), (1, 160), (4, 160)), SMOKE: ((2, 2),)}
"""Numbers of servers and of answers at once. The last has as many answers at each server as the first."""
SENDERS = {FULL: (1, 4, 16), SMOKE: (2,)}
SENDING_SECONDS = {FULL: 3.0, SMOKE: 0.1}
PIECES = {FULL: 60, SMOKE: 3}
REPORT_SECONDS = 1.5
NOTIFY = text("SELECT pg_notify('benchmark', 'a run has new events')")
FLAT = 1.25
"""How much more an event may cost with several servers than with one, including the noise of a shared machine."""

IDLE_RUNS = {FULL: 100, SMOKE: 2}
LISTENERS = {FULL: 1_000, SMOKE: 4}
IDLE_SECONDS = {FULL: 20.0, SMOKE: 0.1}
SETTLE_SECONDS = {FULL: 3.0, SMOKE: 0.0}

STORES: Mapping[Size, Sequence[str]] = {FULL: ("memory", *ENGINES), SMOKE: ("memory", "SQLite")}
RUNS = {FULL: 100, SMOKE: 2}
CALLS = {FULL: 20, SMOKE: 2}
CALLS_ALONE = {FULL: 200, SMOKE: 2}


async def measure(folder: Path, size: Size) -> list[Target]:
    """Print the tables."""
    targets = await _measure_logs(folder / "logs", size)
    targets += await _measure_servers(folder / "servers", size)
    await _measure_database(folder / "database", size)
    await _measure_listeners(folder / "listeners", size)
    await _measure_calls(folder / "calls", size)
    return targets


def run_body(agent: str, count: int, run_id: str, *, is_stored: bool = True) -> dict[str, object]:
    """Return the body of a run of one of `agents`: `count` pieces, or calls."""
    asked = request(agent=agent, run_id=run_id, messages=[{"role": "user", "content": str(count)}])
    return {**asked, "chat_id": f"chat of {run_id}", "message_id": "message"} if is_stored else asked


# --- Logs -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Delays:
    """The seconds between sending and receiving of each piece of text."""

    seconds: list[float] = field(default_factory=list)

    async def run(self, server: Served, run_id: str, pieces: int, has_begun: asyncio.Event) -> None:
        """Start a run, and read it to its end."""
        async with server.asked("POST", "/v1/runs", run_body("paced", pieces, run_id)) as response:
            has_begun.set()
            await response.aread()

    async def follow(self, server: Served, run_id: str, has_begun: asyncio.Event) -> None:
        """Read a run from its beginning."""
        await has_begun.wait()
        async with server.asked("GET", f"/v1/runs/{run_id}/events") as response:
            async for _, event in numbered(response):
                if isinstance(event, Message):
                    now = time.monotonic()
                    self.seconds += [now - float(sent) for sent in event.content.split()]

    def share(self, share: float) -> str:
        """Return a percentile, in ms."""
        return milliseconds(sorted(self.seconds)[round(share * (len(self.seconds) - 1))]) if self.seconds else "–"


@contextmanager
def memory(_: Path) -> Iterator[Engine]:
    yield Engine({}, [])


@asynccontextmanager
async def _in_process(folder: Path, engine: Engine) -> AsyncIterator[Sequence[Served]]:
    """Two servers of one store, or one server with all in memory."""
    scripted = [agents.Scripted(script.__name__, script) for script in (agents.text, agents.paced)]
    settings = {name.lower(): value for name, value in {**UNLIMITED, **engine.settings}.items()}
    names = ("one", "other") if engine.settings else ("one",)
    # Otherwise there is a log in the database too.
    in_process.make_store = None if engine.settings else lambda: Store("sqlite://")
    try:
        async with AsyncExitStack() as stack:
            services = [
                await stack.enter_async_context(serving(folder / name, *scripted, **settings)) for name in names
            ]
            yield [Served(Process(os.getpid()), service.client) for service in services]
    finally:
        in_process.make_store = None


async def _measure_logs(folder: Path, size: Size) -> list[Target]:
    """Print the table: an answer as fast as it comes, and answers at the pace of a model, read at another server."""
    seconds: dict[str, float] = {}
    rows = []
    for name in LOGS[size]:
        own = folder / name
        own.mkdir(parents=True)
        with ENGINES.get(name, memory)(own) as engine:
            async with _in_process(own, engine) as servers:
                # The quickest: the rest is noise.
                seconds[name] = min([await _answer(servers[0], story.CHUNKS[size]) for _ in range(REPETITIONS[size])])
                delays = await _follow_many(servers, READ_RUNS[size], READ_PIECES[size])
        rows.append((name, milliseconds(seconds[name]), delays.share(0.5), delays.share(0.99)))
    chunks = f"{story.CHUNKS[size]:,} chunks"
    pace = f"{1 / agents.PACE_SECONDS:.0f} pieces a second"
    print_table(
        f"{chunks} as fast as they come; {READ_RUNS[size]} answers at once, {pace} each, read at another server",
        ("log", "chunks ms", "a piece p50 ms", "p99 ms"),
        rows,
    )
    # Of the server's part alone: most of what an answer takes is Open WebUI's, which `stream` measures.
    ratio = seconds["SQLite"] / seconds["memory"]
    return [Target(f"{chunks} with the log in SQLite, × memory", ratio, 1.15, "×", aim=True)]


async def _answer(server: Served, chunks: int) -> float:
    """Return the seconds until the last event was received."""
    began = time.perf_counter()
    await _run(server, "text", chunks)
    return time.perf_counter() - began


async def _follow_many(servers: Sequence[Served], runs: int, pieces: int) -> Delays:
    """Return the delays at another server than the one that runs them."""
    delays = Delays()
    async with asyncio.TaskGroup() as group:
        for _ in range(runs):
            run_id = uuid4().hex
            has_begun = asyncio.Event()
            group.create_task(delays.run(servers[0], run_id, pieces, has_begun))
            for other in servers[1:]:
                group.create_task(delays.follow(other, run_id, has_begun))
    return delays


# --- Several servers ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Taken:
    """What was taken of the processor during a block, in seconds."""

    servers: float = 0.0
    store: float = 0.0


@contextmanager
def taking(servers: Sequence[Served], engine: Engine) -> Iterator[Taken]:
    """What servers and their store take in this block; known at its end."""

    def read() -> float:
        return sum(server.process.processor_seconds for server in servers)

    taken = Taken(read(), engine.processor_seconds)
    yield taken
    taken.servers = read() - taken.servers
    taken.store = engine.processor_seconds - taken.store


async def _measure_servers(folder: Path, size: Size) -> list[Target]:
    """Print the table: the same answers at one server, and shared out among several; then more answers."""
    rows = []
    costs = []
    for count, answers in SERVERS[size]:
        events = answers * PIECES[size]
        own = folder / f"{count} {answers}"
        with ENGINES["PostgreSQL"](own) as engine, served.serving(own, engine.settings, count) as servers:
            # What is imported and connected with the first run.
            await _run_many(servers, count, "paced", 1)
            say(f"{answers} answers at {count} servers …")
            transactions, _ = await _ask_postgresql(engine)
            with taking(servers, engine) as taken:
                await _run_many(servers, answers, "paced", PIECES[size])
            ended, connections = await _ask_postgresql(engine)
        costs.append((taken.servers + taken.store) / events)
        each = map(milliseconds, (taken.servers / events, taken.store / events))
        rows.append((count, answers, *each, f"{(ended - transactions) / events:.2f}", connections))
    print_table(
        f"Answers at once over PostgreSQL, {1 / agents.PACE_SECONDS:.0f} events a second each",
        ("servers", "answers", "processor ms an event", "the store's own", "transactions", "connections"),
        rows,
    )
    if size is SMOKE:
        return []
    return [
        Target("an event with several servers, × one", max(costs) / costs[0], FLAT, "×", aim=True),
        Target("an event with as many answers at each of four servers, × one", costs[-1] / costs[0], FLAT, "×"),
    ]


async def _ask_postgresql(engine: Engine) -> tuple[int, int]:
    """Return the number of transactions so far, and the number of connections, without this one."""
    async with _connecting(engine) as connection:
        # A server process reports its transactions once a second.
        await asyncio.sleep(REPORT_SECONDS)
        query = "SELECT xact_commit, numbackends FROM pg_stat_database WHERE datname = 'postgres'"
        transactions, connections = (await connection.execute(text(query))).one()
    return transactions, connections - 1


@asynccontextmanager
async def _connecting(engine: Engine) -> AsyncIterator[AsyncConnection]:
    """A connection without transactions, which is closed at the end."""
    database = create_async_engine(engine.settings["DATABASE_URL"], isolation_level="AUTOCOMMIT")
    try:
        async with database.connect() as connection:
            yield connection
    finally:
        await database.dispose()


# --- The database ---------------------------------------------------------------------------------------------------


async def _measure_database(folder: Path, size: Size) -> None:
    """Print two tables: the size of rows, and how many transactions may notify, by the number of senders."""
    rows = []
    with ENGINES["PostgreSQL"](folder) as engine:
        with served.serving(folder, engine.settings) as servers:
            for agent, count in (("paced", PIECES[size]), ("calling", CALLS[size])):
                before = await _read_sizes(engine)
                await _run_many(servers, RUNS[size], agent, count)
                after = await _read_sizes(engine)
                for table, (number, filled) in after.items():
                    new = number - before[table][0]
                    rows.append((agent, table, new, round((filled - before[table][1]) / new)))
        print_table("Rows in PostgreSQL, with their indexes", ("agent", "table", "rows", "bytes a row"), rows)
        print_table(
            "Transactions with NOTIFY, without disk syncs",
            ("senders", "a second"),
            [(senders, f"{await _notify(engine, senders, size):,.0f}") for senders in SENDERS[size]],
        )


async def _read_sizes(engine: Engine) -> dict[str, tuple[int, int]]:
    """Return the number of rows and the bytes of tables."""
    query = "SELECT count(*), pg_total_relation_size('{0}') FROM {0}"
    async with _connecting(engine) as connection:
        found = {table: await connection.execute(text(query.format(table))) for table in ("events", "messages", "runs")}
    return {table: result.one()._tuple() for table, result in found.items()}


async def _notify(engine: Engine, senders: int, size: Size) -> float:
    """Return the number of transactions in a second."""

    async def send() -> int:
        sent = 0
        async with _connecting(engine) as connection:
            while time.perf_counter() < end:
                await connection.execute(NOTIFY)
                sent += 1
        return sent

    end = time.perf_counter() + SENDING_SECONDS[size]
    return sum(await asyncio.gather(*(send() for _ in range(senders)))) / SENDING_SECONDS[size]


async def _run(server: Served, agent: str, count: int, *, is_stored: bool = True) -> bytes:
    """Return the stream of a run."""
    body = run_body(agent, count, uuid4().hex, is_stored=is_stored)
    async with server.asked("POST", "/v1/runs", body) as response:
        return await response.aread()


async def _run_many(
    servers: Sequence[Served], runs: int, agent: str, count: int, *, is_stored: bool = True
) -> list[bytes]:
    """Return the streams of runs at once, shared out among servers."""
    return await asyncio.gather(
        *(_run(servers[number % len(servers)], agent, count, is_stored=is_stored) for number in range(runs))
    )


# --- Idle listeners -------------------------------------------------------------------------------------------------


async def _measure_listeners(folder: Path, size: Size) -> None:
    """Print the table: runs that say nothing, without and with listeners."""
    with ENGINES[SHARED[size]](folder) as engine, served.serving(folder, engine.settings) as servers:
        async with AsyncExitStack() as listening:
            say(f"{IDLE_RUNS[size]} idle runs …")
            run_ids = [uuid4().hex for _ in range(IDLE_RUNS[size])]
            for run_id in run_ids:
                body = run_body("silent", 0, run_id)
                await listening.enter_async_context(_hearing(servers[0], "POST", "/v1/runs", body))
            rows = [await _rest("none but the first", servers, engine, size)]
            say(f"{LISTENERS[size]} listeners …")
            for number in range(LISTENERS[size]):
                path = f"/v1/runs/{run_ids[number % len(run_ids)]}/events"
                await listening.enter_async_context(_hearing(servers[0], "GET", path))
            rows.append(await _rest(f"{LISTENERS[size]:,}", servers, engine, size))
    print_table(
        f"{IDLE_RUNS[size]} runs that say nothing, and their listeners, at a server of {SHARED[size]}",
        ("listeners", "server s a minute", "its store s a minute"),
        rows,
    )


@asynccontextmanager
async def _hearing(server: Served, method: str, path: str, body: object = None) -> AsyncIterator[None]:
    """A listener, once it has received the first word."""
    async with server.asked(method, path, body) as response:
        received = b""
        pieces = response.aiter_raw()
        while b"Hello." not in received:
            received += await anext(pieces)
        yield


async def _rest(name: str, servers: Sequence[Served], engine: Engine, size: Size) -> tuple[str, ...]:
    """Return a row: what is taken in a minute while nothing happens."""
    await asyncio.sleep(SETTLE_SECONDS[size])
    with taking(servers, engine) as taken:
        await asyncio.sleep(IDLE_SECONDS[size])
    return (name, *(f"{seconds / IDLE_SECONDS[size] * 60:.2f}" for seconds in (taken.servers, taken.store)))


# --- Calls ----------------------------------------------------------------------------------------------------------


async def _measure_calls(folder: Path, size: Size) -> None:
    """Print the table: a run that calls one tool after the other, alone and with many others, by the store."""
    rows = []
    for name in STORES[size]:
        say(f"{RUNS[size]} runs with {CALLS[size]} calls each, {name} …")
        own = folder / name
        is_stored = name in ENGINES
        with ENGINES.get(name, memory)(own) as engine, served.serving(own, engine.settings) as servers:
            # The first is not counted.
            alone = [await _time_calls(servers, 1, CALLS_ALONE[size], is_stored=is_stored) for _ in range(3)]
            with taking(servers, engine) as taken:
                seconds = await _time_calls(servers, RUNS[size], CALLS[size], is_stored=is_stored)
        calls = RUNS[size] * CALLS[size]
        each = map(milliseconds, (value / calls for value in (seconds, taken.servers, taken.store)))
        rows.append((name, f"{min(alone[1:]) / CALLS_ALONE[size] * 1000:.2f}", f"{seconds:.2f}", *each))
    print_table(
        f"A run with {CALLS_ALONE[size]} calls, and {RUNS[size]} runs at once with {CALLS[size]} calls each, "
        "as fast as they come, at one server",
        ("store", "alone, ms a call", "at once, s", "ms a call", "processor ms a call", "the store's own"),
        rows,
    )


async def _time_calls(servers: Sequence[Served], runs: int, calls: int, *, is_stored: bool) -> float:
    """Return the seconds that `runs` runs at once take, with `calls` calls each."""
    began = time.perf_counter()
    streams = await _run_many(servers, runs, "calling", calls, is_stored=is_stored)
    seconds = time.perf_counter() - began
    if any(stream.count(b'"tool_call_complete"') != calls for stream in streams):
        raise AssertionError(f"not all calls were streamed: {streams[0][-500:]!r}")
    return seconds
