"""Callboard beside Agno's own server, AgentOS: the same agent, the same scripted model, one run.

The targets are what AgentOS reaches without a database, where it is fastest and keeps nothing; only a call's result is
held against AgentOS with SQLite, since Callboard always writes it down. Text that comes faster than Callboard joins it
waits there on purpose (`runs/text_writer.py`), and is in a column of its own, which has no target.
"""

import re
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agno.agent import Agent
from agno.run.agent import RunContentEvent, ToolCallCompletedEvent

from tests.bench import story
from tests.bench.agno_model import long_story, short_story, silence, slow_story
from tests.bench.agno_servers.definition import story_agent
from tests.bench.contenders import Contender, Running, contenders
from tests.bench.report import Target, print_table, say
from tests.bench.size import FULL, SMOKE, Size
from tests.pipe.scripted_server import ScriptedServer

CALLS = {FULL: 20, SMOKE: 2}
"""20 is as many as Callboard lets a turn have."""
ROUNDS = {FULL: 5, SMOKE: 1}
MEMORY_ROUNDS = {FULL: 3, SMOKE: 1}
PACED_CHUNKS = {FULL: 60, SMOKE: 4}
PACED_CALLS = {FULL: 6, SMOKE: 2}
# Slower, and faster, than Callboard joins text.
SLOW_SECONDS = 0.03
FAST_SECONDS = 0.01
TIE_MS = 0.05
"""What the medians of two measurements of one server differ by."""
IDLE_STREAMS = {FULL: 100, SMOKE: 25}
"""At either size more than a user may have by default."""
WARMING_RUNS = 5

CHUNK = re.compile(rb"chunk (\d{4})\.")
RESULT = re.compile(rb"result (\d{4}) ")
STAMP = re.compile(rb"(sent|called)=(\d+);")
# What is cut in two by the end of a piece is found with this much of it.
TAIL_BYTES = 64


@dataclass(slots=True)
class Delays:
    """Milliseconds from when a text was sent, and a tool ran, until a client saw it."""

    texts: list[float] = field(default_factory=list)
    results: list[float] = field(default_factory=list)

    def medians_over(self, direct: "Delays") -> tuple[float, float, float]:
        """How much later the median event is seen than from the agent itself; the median text; the median result."""
        return (
            statistics.median(self.texts + self.results) - statistics.median(direct.texts + direct.results),
            statistics.median(self.texts) - statistics.median(direct.texts),
            statistics.median(self.results) - statistics.median(direct.results),
        )

    async def read(self, pieces: AsyncIterator[bytes]) -> None:
        """Take in a run, in which each stamp counts where it is seen first: some repeat the whole text at the end."""
        seen: set[bytes] = set()
        tail = b""
        async for piece in pieces:
            now = time.monotonic_ns()
            for kind, stamp in STAMP.findall(tail + piece):
                if stamp not in seen:
                    seen.add(stamp)
                    (self.texts if kind == b"sent" else self.results).append((now - int(stamp)) / 1e6)
            tail = piece[-TAIL_BYTES:]


async def measure_agentos(folder: Path, size: Size) -> list[Target]:
    """Prints the tables; Callboard must not be behind in any line."""
    all_of_them = contenders(size)
    async with ScriptedServer() as model:
        memory = await _memory(all_of_them, folder, model, size)
        async with AsyncExitStack() as stack:
            servers = [stack.enter_context(one.running(folder / one.name, f"{model.url}/v1")) for one in all_of_them]
            for server in servers:
                stack.push_async_callback(server.client.aclose)
            rates = await _rates(servers, model, size)
            slow = await _delays(servers, model, SLOW_SECONDS, size)
            fast = await _delays(servers, model, FAST_SECONDS, size)
    return _report(rates, slow, fast, memory, size)


async def _rates(servers: Sequence[Running], model: ScriptedServer, size: Size) -> dict[str, list[float]]:
    """Events a second, of each round; the first warms up."""
    chunks = story.CHUNKS[size]
    calls = CALLS[size]
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(ROUNDS[size] + 1):
        say(f"Events a second, round {number} of {ROUNDS[size]} …")
        for server in servers:
            model.on("POST", "completions", *long_story(chunks, calls))
            began = time.perf_counter()
            async with server.asked() as pieces:
                told = b"".join([piece async for piece in pieces])
            seconds = time.perf_counter() - began
            if (len(set(CHUNK.findall(told))), len(set(RESULT.findall(told)))) != (chunks, calls):
                raise AssertionError(f"{server.name} told not all of the story: {told[-500:]!r}")
            # A call is two events: its start and its end.
            rates[server.name] += [(chunks + 2 * calls) / seconds] * (number > 0)
    return rates


async def _delays(servers: Sequence[Running], model: ScriptedServer, seconds: float, size: Size) -> dict[str, Delays]:
    """Of each server, and of the agent alone: `direct`."""
    agent = story_agent(f"{model.url}/v1")
    delays = {name: Delays() for name in ("direct", *(server.name for server in servers))}
    paced = partial(slow_story, PACED_CHUNKS[size], PACED_CALLS[size], seconds)
    for number in range(ROUNDS[size]):
        say(f"A text every {seconds * 1000:.0f} ms, round {number + 1} of {ROUNDS[size]} …")
        model.on("POST", "completions", *paced())
        await delays["direct"].read(_direct(agent))
        for server in servers:
            model.on("POST", "completions", *paced())
            async with server.asked() as pieces:
                await delays[server.name].read(pieces)
    return delays


async def _direct(agent: Agent) -> AsyncIterator[bytes]:
    """What the agent's own events say, in this process."""
    async for event in agent.arun("Tell it.", stream=True, stream_events=True):
        match event:
            case RunContentEvent(content=str(content)):
                yield content.encode()
            case ToolCallCompletedEvent(tool=tool) if tool is not None:
                yield str(tool.result).encode()


async def _memory(
    contenders: Sequence[Contender], folder: Path, model: ScriptedServer, size: Size
) -> dict[str, list[float]]:
    """KiB for each stream that is open and silent, of servers that have just been started and answered a few times."""
    kib: dict[str, list[float]] = {one.name: [] for one in contenders}
    for number in range(MEMORY_ROUNDS[size]):
        say(f"{IDLE_STREAMS[size]} idle streams, round {number + 1} of {MEMORY_ROUNDS[size]} …")
        for one in contenders:
            with one.running(folder / f"{one.name}-{number}", f"{model.url}/v1") as server:
                kib[one.name].append(await _kib_per_stream(server, model, IDLE_STREAMS[size]))
                await server.client.aclose()
    return kib


async def _kib_per_stream(server: Running, model: ScriptedServer, streams: int) -> float:
    for _ in range(WARMING_RUNS):
        model.on("POST", "completions", *short_story())
        async with server.asked() as pieces:
            _ = [piece async for piece in pieces]
    before = server.resident_kib
    model.on("POST", "completions", *silence())
    async with AsyncExitStack() as opened:
        for _ in range(streams):
            pieces = await opened.enter_async_context(server.asked())
            told = b""
            while b"Hello." not in told:
                told += await anext(pieces)
        return (server.resident_kib - before) / streams


def _report(
    rates: Mapping[str, Sequence[float]],
    slow: Mapping[str, Delays],
    fast: Mapping[str, Delays],
    memory: Mapping[str, Sequence[float]],
    size: Size,
) -> list[Target]:
    rate = {name: statistics.median(values) for name, values in rates.items()}
    kib = {name: statistics.median(values) for name, values in memory.items()}
    added = {name: slow[name].medians_over(slow["direct"]) for name in rates}
    joined = {name: fast[name].medians_over(fast["direct"])[1] for name in rates}
    rows = [
        (name, f"{rate[name]:,.0f}", *(f"{ms:.2f}" for ms in (*added[name], joined[name])), f"{kib[name]:.1f}")
        for name in rates
    ]
    every = f"… text every {FAST_SECONDS * 1000:.0f} ms"
    headings = ("server", "events a second", "added ms", "… text", "… results", every, "KiB a stream")
    print_table(f"One agent of Agno behind its servers; memory of {IDLE_STREAMS[size]} idle streams", headings, rows)
    ours, *others = rates
    if not others:
        return []
    bare, keeping = others
    return [
        Target("events a second, beside AgentOS", rate[ours], rate[bare], "events", at_least=True),
        Target("added latency of an event, beside AgentOS", added[ours][0], added[bare][0] + TIE_MS, "ms"),
        # Both write it down; Callboard before it is shown, so that who saw it finds it again after a crash.
        Target("added latency of a result, beside AgentOS with SQLite", added[ours][2], added[keeping][2], "ms"),
        Target("memory of an idle stream, beside AgentOS", kib[ours], kib[bare], "KiB"),
    ]
