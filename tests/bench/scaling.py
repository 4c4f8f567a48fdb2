"""What it costs to keep the log of runs: in SQLite's memory, in a file of SQLite, in PostgreSQL without and with Redis.

Two tables: one answer as fast as it comes, until its last event is received; and some answers at one time, each at the
pace of a model, read at the server that runs them and at another one of the same store. Servers and listeners share
this process: what many servers cost is in `sharing.py`.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from callboard.storage import Store
from tests import serving as in_process
from tests.bench import scale_agents, served, story
from tests.bench.report import Target, milliseconds, print_table
from tests.bench.served import UNLIMITED, Engine, Heard, Process, Served
from tests.bench.serving_events import telling
from tests.bench.size import FULL, SMOKE, Size
from tests.serving import ScriptedAgent, request, serving

RUNS = {FULL: 20, SMOKE: 2}
"""As many as one process has time for, listeners and all: delays are to be those of the log, and not of a queue."""
PIECES = {FULL: 40, SMOKE: 3}
REPETITIONS = {FULL: 3, SMOKE: 1}


@contextmanager
def memory(_: Path) -> Iterator[Engine]:
    yield Engine({}, [])


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {
    "memory": memory,
    "SQLite": served.sqlite,
    "PostgreSQL": served.postgresql,
    "PostgreSQL with Redis": served.redis,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as fast as it comes; seconds of the clock and of the processor."""

    seconds: float
    processor_seconds: float


@asynccontextmanager
async def two_servers(folder: Path, engine: Engine, chunks: int) -> AsyncIterator[Sequence[Served]]:
    """Two servers of one store; in memory there is one alone."""
    agents = (
        ScriptedAgent(telling(lambda: story.text_only(chunks)), "text"),
        ScriptedAgent(telling(lambda: story.with_calls(chunks)), "calls"),
        ScriptedAgent(scale_agents.paced, "paced"),
    )
    settings = {name.lower(): value for name, value in {**UNLIMITED, **engine.settings}.items()}
    names = ("one", "other") if engine.settings else ("one",)
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(serving(folder / name, *agents, **settings)) for name in names]
        yield [Served(Process(os.getpid()), service.client) for service in services]


async def measure_scaling(folder: Path, size: Size) -> list[Target]:
    """Prints the tables; the targets compare with the log in SQLite's memory."""
    chunks = story.CHUNKS[size]
    runs = RUNS[size]
    answers: dict[str, dict[str, Answer]] = {}
    rows = []
    for name, engine_of in ENGINES.items():
        own = folder / name.split(",")[0]
        own.mkdir()
        with engine_of(own) as engine:
            # Otherwise there is a log in the database too.
            in_process.make_store = None if engine.settings else lambda: Store("sqlite://")
            try:
                async with two_servers(own, engine, chunks) as servers:
                    answers[name] = {
                        agent: await _answer(servers[0], agent, REPETITIONS[size]) for agent in ("text", "calls")
                    }
                    rows.append((name, *await _answer_many(servers, runs, PIECES[size])))
            finally:
                in_process.make_store = None
    _print_answers(answers, chunks)
    print_table(
        f"{runs} answers at one time, {1 / scale_agents.PACE_SECONDS:.0f} pieces a second each",
        ("log", "own p50 ms", "own p99 ms", "elsewhere p50 ms", "elsewhere p99 ms", "processor ms a piece"),
        rows,
    )
    sqlite = answers["SQLite"]
    # Of the server's part alone: most of what an answer takes is Open WebUI's, which `stream` measures.
    return [
        Target(
            f"{chunks:,} chunks with the log in SQLite, × memory",
            sqlite["text"].seconds / answers["memory"]["text"].seconds,
            1.15,
            "×",
            aim=True,
        ),
        Target("a call with the log in SQLite", 1000 * _seconds_a_call(sqlite, chunks), 0.6, "ms", aim=True),
    ]


def _seconds_a_call(of: dict[str, Answer], chunks: int) -> float:
    return (of["calls"].seconds - of["text"].seconds) / story.call_count(chunks)


def _print_answers(answers: dict[str, dict[str, Answer]], chunks: int) -> None:
    rows = [
        (
            name,
            milliseconds(of["text"].seconds),
            milliseconds(of["text"].processor_seconds),
            milliseconds(of["calls"].seconds),
            milliseconds(_seconds_a_call(of, chunks)),
        )
        for name, of in answers.items()
    ]
    print_table(
        f"{chunks:,} chunks of text, and the same with {story.call_count(chunks)} calls, as fast as they come",
        ("log", "text ms", "its processor ms", "with calls ms", "a call ms"),
        rows,
    )


async def _answer(server: Served, agent: str, repetitions: int) -> Answer:
    """The quickest of some runs: what comes on top is noise."""
    answers = []
    for repetition in range(repetitions):
        body = {**request(agent=agent), "chat_id": f"{agent}-{repetition}", "message_id": "message"}
        began = time.perf_counter()
        processor = time.process_time()
        async with server.asked("POST", "/v1/runs", body) as response:
            async for _ in response.aiter_bytes():
                pass
        answers.append(Answer(time.perf_counter() - began, time.process_time() - processor))
    return min(answers, key=lambda answer: answer.seconds)


async def _answer_many(servers: Sequence[Served], runs: int, pieces: int) -> tuple[str, ...]:
    """Return the delays at the server that runs them, at another one, and what it all took of the processor."""
    own = Heard()
    elsewhere = Heard()
    processor = time.process_time()
    async with asyncio.TaskGroup() as group:
        for run in range(runs):
            has_begun = asyncio.Event()
            group.create_task(own.run(servers[0], run, pieces, has_begun))
            if len(servers) > 1:
                group.create_task(elsewhere.follow(servers[1], run, has_begun))
    seconds = time.process_time() - processor
    delays = (heard.share(share) for heard in (own, elsewhere) for share in (0.5, 0.99))
    return *delays, milliseconds(seconds / (runs * pieces))
