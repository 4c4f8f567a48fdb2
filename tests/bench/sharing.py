"""What it costs to serve many: 1, 2, 4 servers of one PostgreSQL, listeners with nothing to hear, runs full of calls.

Servers are processes of their own, and so are their stores: what each takes of the processor is told apart, and who
listens here is in neither.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import scale_agents, served
from tests.bench.report import Target, milliseconds, print_table, say
from tests.bench.served import Engine, Heard, Served, run_body
from tests.bench.size import FULL, SMOKE, Size

STREAMS = {FULL: 40, SMOKE: 2}
"""As many as two processors have time for, with all servers, their store and who listens."""
PIECES = {FULL: 60, SMOKE: 3}
SERVERS = {FULL: (1, 2, 4), SMOKE: (1, 2)}
FLAT = 1.25
"""How much more an event may cost with several servers than with one, the noise of a shared machine in it."""
IDLE_RUNS = {FULL: 100, SMOKE: 2}
LISTENERS = {FULL: 1_000, SMOKE: 4}
IDLE_SECONDS = {FULL: 20.0, SMOKE: 0.1}
SETTLE_SECONDS = {FULL: 3.0, SMOKE: 0.0}
RUNS = {FULL: 100, SMOKE: 2}
CALLS = {FULL: 20, SMOKE: 2}
ENGINES = {"SQLite": served.sqlite, "PostgreSQL": served.postgresql, "PostgreSQL with Redis": served.redis}


@dataclass(slots=True)
class Taken:
    """What was taken of the processor while a block ran, in seconds."""

    servers: list[float]
    store: float = 0.0


@contextmanager
def taking(servers: Sequence[Served], engine: Engine) -> Iterator[Taken]:
    """What servers and their store take in this block; known at its end."""
    before = [server.process.processor_seconds for server in servers]
    store_before = engine.processor_seconds
    taken = Taken([])
    yield taken
    taken.servers = [
        server.process.processor_seconds - seconds for server, seconds in zip(servers, before, strict=True)
    ]
    taken.store = engine.processor_seconds - store_before


# --- 1, 2, 4 servers ------------------------------------------------------------------------------------------------


async def measure_servers(folder: Path, size: Size) -> list[Target]:
    """Prints the table: the same answers at one server, shared out among two, and among four."""
    streams = STREAMS[size]
    pieces = PIECES[size]
    rows = []
    costs = {}
    for count in SERVERS[size]:
        with served.postgresql(folder) as engine, served.serving(folder / str(count), engine, count) as servers:
            # What is imported and connected with the first run.
            await _answer(servers, count, pieces, count > 1, 10**6, Heard(), Heard())
            for is_followed in (False, True) if count > 1 else (False,):
                say(f"{count} servers{', followed elsewhere' * is_followed} …")
                own = Heard()
                elsewhere = Heard()
                with taking(servers, engine) as taken:
                    await _answer(servers, streams, pieces, is_followed, streams * is_followed, own, elsewhere)
                events = streams * pieces
                cost = sum(taken.servers) / events
                costs[count, is_followed] = cost + taken.store / events
                rows.append(
                    (
                        f"{count}{', each run followed at another' * is_followed}",
                        milliseconds(cost),
                        milliseconds(taken.store / events),
                        own.share(0.5),
                        own.share(0.99),
                        elsewhere.share(0.5),
                        elsewhere.share(0.99),
                    )
                )
    print_table(
        f"{streams} answers at one time over PostgreSQL, {1 / scale_agents.PACE_SECONDS:.0f} events a second each",
        ("servers", "processor ms an event", "PostgreSQL's", "own p50 ms", "p99", "elsewhere p50 ms", "p99"),
        rows,
    )
    most = max(cost for (_, is_followed), cost in costs.items() if not is_followed)
    return [Target("an event with several servers, × one", most / costs[1, False], FLAT, "×")]


async def _answer(
    servers: Sequence[Served], runs: int, pieces: int, is_followed: bool, first: int, own: Heard, elsewhere: Heard
) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(runs):
            has_begun = asyncio.Event()
            server = servers[number % len(servers)]
            other = servers[(number + 1) % len(servers)]
            group.create_task(own.run(server, first + number, pieces, has_begun))
            if is_followed:
                group.create_task(elsewhere.follow(other, first + number, has_begun))


# --- Idle listeners -------------------------------------------------------------------------------------------------


async def measure_listeners(folder: Path, size: Size) -> list[Target]:
    """Prints the table: runs that say nothing, then listeners of them at their own server, then at another one."""
    idle_runs = IDLE_RUNS[size]
    listeners = LISTENERS[size]
    with served.postgresql(folder) as engine, served.serving(folder, engine, 2) as servers:
        owner, other = servers
        rows = []
        async with AsyncExitStack() as asked:
            say(f"{idle_runs} idle runs …")
            for number in range(idle_runs):
                await asked.enter_async_context(_hearing(owner, "POST", "/v1/runs", run_body("silent", number, 0)))
            rows.append(await _rest("nobody but who asked", servers, engine, size))
            for name, server in (("at the owner", owner), ("at the other", other)):
                say(f"{listeners} listeners {name} …")
                async with AsyncExitStack() as listening:
                    for number in range(listeners):
                        path = f"/v1/runs/run-{number % idle_runs}/events"
                        await listening.enter_async_context(_hearing(server, "GET", path))
                    rows.append(await _rest(f"{listeners:,} {name}", servers, engine, size))
        rows.append(await _rest("nobody any more", servers, engine, size))
    print_table(
        f"{idle_runs} runs that say nothing, their listeners, two servers of one PostgreSQL",
        ("listeners", "owner MiB", "other MiB", "owner s a minute", "other s a minute", "PostgreSQL s a minute"),
        rows,
    )
    return []


@asynccontextmanager
async def _hearing(server: Served, method: str, path: str, body: object = None) -> AsyncIterator[None]:
    """A listener, once it has heard the first word."""
    async with server.asked(method, path, body) as response:
        told = b""
        pieces = response.aiter_raw()
        while b"Hello." not in told:
            told += await anext(pieces)
        yield


async def _rest(name: str, servers: Sequence[Served], engine: Engine, size: Size) -> tuple[str, ...]:
    """A row: what is taken while nothing happens, in a minute."""
    await asyncio.sleep(SETTLE_SECONDS[size])
    with taking(servers, engine) as taken:
        await asyncio.sleep(IDLE_SECONDS[size])
    minutes = IDLE_SECONDS[size] / 60
    memory = (f"{server.process.resident_mib:.0f}" for server in servers)
    return (name, *memory, *(f"{seconds / minutes:.2f}" for seconds in (*taken.servers, taken.store)))


# --- Calls ----------------------------------------------------------------------------------------------------------


async def measure_calls(folder: Path, size: Size) -> list[Target]:
    """Prints the table: many runs that call one tool after the other, at one server, by the store that it has."""
    runs = RUNS[size]
    calls_a_run = CALLS[size]
    rows = []
    for name, engine_of in ENGINES.items():
        say(f"{runs} runs with {calls_a_run} calls each, {name} …")
        own = folder / name.split(",")[0]
        own.mkdir()
        with engine_of(own) as engine, served.serving(own, engine, 1) as servers:
            await _call(servers[0], 1, calls_a_run, 10**6)
            began = time.perf_counter()
            with taking(servers, engine) as taken:
                await _call(servers[0], runs, calls_a_run, 0)
            seconds = time.perf_counter() - began
        calls = runs * calls_a_run
        costs = (seconds / calls, taken.servers[0] / calls, taken.store / calls)
        rows.append((name, f"{seconds:.2f}", *map(milliseconds, costs)))
    print_table(
        f"{runs} runs at one time with {calls_a_run} calls each, as fast as they come, at one server",
        ("store", "seconds", "ms a call", "processor ms a call", "the store's own"),
        rows,
    )
    return []


async def _call(server: Served, runs: int, calls: int, first: int) -> None:
    async def run(number: int) -> None:
        async with server.asked("POST", "/v1/runs", run_body("calling", number, calls)) as response:
            told = await response.aread()
        if told.count(b'"tool_call_complete"') != calls:
            raise AssertionError(f"not all calls were told: {told[-500:]!r}")

    await asyncio.gather(*(run(first + number) for number in range(runs)))
