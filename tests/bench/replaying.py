"""How long it takes to build a model's messages from a long chat: one query, and replay."""

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from callboard._history import replay
from callboard.storage import Store
from tests.bench.long_chat import CALLS_PER_TURN, Result, Row, branch, fill, plain_result, search_result
from tests.bench.report import Target, milliseconds, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.bench.statements import counted

TURNS = {FULL: (1_000, 2_000, 4_000), SMOKE: (10, 20, 40)}
REPETITIONS = {FULL: 7, SMOKE: 1}
MAX_SECONDS = 0.150
# Four times the work; the rest is noise.
MAX_GROWTH = 5.0
HEADINGS = ("chat", "turns", "calls", "result MB", "queries", "load ms", "replay ms", "total ms", "fastest ms")


@dataclass(frozen=True, slots=True)
class Reading:
    """One chat read and replayed; medians of several, in seconds."""

    turns: int
    queries: int
    load: float
    replay: float
    total: float
    fastest: float

    def row(self, name: str, result_bytes: int) -> tuple[object, ...]:
        calls = self.turns * CALLS_PER_TURN
        times = [milliseconds(seconds) for seconds in (self.load, self.replay, self.total, self.fastest)]
        return (name, f"{self.turns:,}", f"{calls:,}", f"{calls * result_bytes / 1e6:.0f}", self.queries, *times)


async def measure_replay(folder: Path, size: Size) -> list[Target]:
    """Prints the table; the targets are those of the fewest turns."""
    fewest, *_, most = TURNS[size]
    repetitions = REPETITIONS[size]
    store = await Store.open(f"sqlite+aiosqlite:///{folder / 'long.db'}")
    try:
        plain = {
            turns: await _reading(store, f"plain-{turns}", turns, plain_result, repetitions) for turns in TURNS[size]
        }
        search = await _reading(store, "search", fewest, search_result, repetitions)
    finally:
        await store.close()
    rows = [reading.row("plain results", len(plain_result(0))) for reading in plain.values()]
    print_table("Replay of a long chat", HEADINGS, [*rows, search.row("search results", len(search_result(0)))])
    first = plain[fewest]
    # The fastest runs: how the work grows, not how busy the machine was.
    growth = plain[most].fastest / first.fastest
    return [
        Target("queries to load a chat", max(reading.queries for reading in plain.values()), 1, "queries"),
        Target(
            f"load and replay of {fewest:,} turns with {fewest * CALLS_PER_TURN:,} calls",
            first.total * 1000,
            MAX_SECONDS * 1000,
            "ms",
        ),
        Target("the same for four times the turns", growth, MAX_GROWTH, "times as long"),
    ]


async def _reading(store: Store, chat_id: str, turns: int, result: Result, repetitions: int) -> Reading:
    await fill(store, chat_id, turns, result)
    sent = branch(turns, result)
    with counted() as statements:
        await store.chats(None).history(chat_id)
    times = [await _timed(store, chat_id, sent) for _ in range(repetitions)]
    loads, replays = zip(*times, strict=True)
    totals = [load + replaying for load, replaying in times]
    medians = (statistics.median(loads), statistics.median(replays), statistics.median(totals))
    return Reading(turns, statements.executed, *medians, min(totals))


async def _timed(store: Store, chat_id: str, sent: list[Row]) -> tuple[float, float]:
    with _settled():
        began = time.perf_counter()
        history = await store.chats(None).history(chat_id)
        loaded = time.perf_counter()
        replayed = replay(sent, history.calls)
        ended = time.perf_counter()
    if replayed.messages != sent:
        raise AssertionError("replay lost or changed something: these results were sent as they are stored")
    await asyncio.sleep(0)
    return loaded - began, ended - loaded


@contextmanager
def _settled() -> Iterator[None]:
    """The garbage collector looks only at what the block makes.

    What the process has imported and holds for other chats takes it 80 ms, in some runs and not in others.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
