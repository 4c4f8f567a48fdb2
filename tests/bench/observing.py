"""What it costs to be seen and counted: the same runs at servers with metrics, traces, audit and bounds off and on.

Each server is a process of its own, and so is told apart what it takes of the processor. A run is of a chat that is
kept, asks its model three times, over HTTP, runs three tools and answers; its spans go to a receiver over HTTP, and a
scrape comes each second. A model that takes its time costs no processor: what is measured is the most that it can be.
"""

import asyncio
import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import truediv
from pathlib import Path
from uuid import uuid4

from tests.bench import served
from tests.bench.report import Target, milliseconds, print_table, say
from tests.bench.served import Engine, Served
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text, usage
from tests.fakes.otlp_receiver import OtlpReceiver
from tests.serving import request

PIECES = 300
RUNS = 40
AT_ONCE = 8
ROUNDS = 15
MOST = 3.0
"""The most that a run may cost more, in per cent of what it costs unseen."""
SCRAPE_SECONDS = 1.0

OFF = {"METRICS": "false"}
METRICS: Mapping[str, str] = {}
CONTENTS = {"TRACE_CONTENT": "true"}
AUDIT = {**OFF, "AUDIT": "true"}
BOUNDS = {**OFF, "MAX_USER_CALLS_PER_DAY": "1000000", "MAX_USER_TOKENS_PER_DAY": "1000000000"}
SEEN: Mapping[str, tuple[Mapping[str, str], bool]] = {
    "off": (OFF, False),
    "off once more, for the noise": (OFF, False),
    "metrics": (METRICS, False),
    "metrics and traces": (METRICS, True),
    "metrics and traces with contents": (CONTENTS, True),
    "the audit": (AUDIT, False),
    "bounds of calls and tokens a day": (BOUNDS, False),
}
"""Settings, and whether spans are sent."""
BOUNDED = ("metrics and traces", "the audit", "bounds of calls and tokens a day")


def answer(body: Body) -> Answer:
    """Two calls, another one, a text."""
    match sum(message["role"] == "tool" for message in body["messages"]):
        case 0:
            calls = [call("look", f'{{"shelf": {n}}}', index=n, call_id=f"c{n}") for n in range(2)]
            return chunks(*calls, finish("tool_calls"), usage(100, 10))
        case 2:
            return chunks(call("look", '{"shelf": 9}', call_id="c9"), finish("tool_calls"), usage(150, 10))
        case _:
            pieces = [text(f"word {number} ") for number in range(PIECES)]
            return chunks(*pieces, finish("stop"), usage(200, PIECES))


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def measure_observing(folder: Path) -> list[Target]:
    """Prints the table: the same runs, unseen and seen."""
    seconds: dict[str, list[float]] = {name: [] for name in SEEN}
    async with OpenAIServer(answer) as model:
        with ExitStack() as running:
            receiver = running.enter_context(OtlpReceiver())
            servers = {}
            for number, (name, (settings, is_traced)) in enumerate(SEEN.items()):
                own = folder / str(number)
                own.mkdir()
                engine = Engine({"MODEL_BASE_URL": model.base_url, "MODEL": "m", **settings}, [])
                with _variables({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url} if is_traced else {}):
                    [servers[name]] = running.enter_context(served.serving(own, engine, 1))
            scraping = asyncio.create_task(_scrape(list(servers.values())))
            for server in servers.values():
                await _run(server, RUNS)
            for number in range(ROUNDS):
                say(f"round {number + 1} of {ROUNDS} …")
                # In turns from either end: a machine that gets slower slows down each as much.
                names = list(SEEN) if number % 2 else list(SEEN)[::-1]
                for name in names:
                    before = servers[name].process.processor_seconds
                    await _run(servers[name], RUNS)
                    seconds[name].append((servers[name].process.processor_seconds - before) / RUNS)
            scraping.cancel()
    # Compared within each round: what else the machine does changes from one to the next.
    more = {name: (statistics.median(map(truediv, its, seconds["off"])) - 1) * 100 for name, its in seconds.items()}
    rows = [
        (name, milliseconds(statistics.median(its)), milliseconds(min(its)), f"{more[name]:+.1f} %")
        for name, its in seconds.items()
    ]
    print_table(
        f"{ROUNDS} × {RUNS} runs of three requests to a model, three calls and {PIECES} pieces of text",
        ("seen by", "processor ms a run, median", "least", "more than unseen"),
        rows,
    )
    say(f"{len(receiver.bodies)} exports were received")
    return [Target(f"a run with {name}, more than without", more[name], MOST, "%") for name in BOUNDED]


async def _run(server: Served, count: int) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def run() -> None:
        body = request(agent="errand", chat_id=uuid4().hex, message_id="m", user={"id": "ann"})
        async with places, server.asked("POST", "/v1/runs", body) as response:
            told = await response.aread()
        if told.count(b'"tool_call_complete"') != 3 or b'"done"' not in told:
            raise AssertionError(f"not the run that was meant: {told[-500:]!r}")

    await asyncio.gather(*(run() for _ in range(count)))


async def _scrape(servers: list[Served]) -> None:
    while True:
        for server in servers:
            await server.client.get("/metrics")
        await asyncio.sleep(SCRAPE_SECONDS)
