"""What it costs to be seen: the same runs at servers where each thing that sees them is on, all are, and none is.

Each is measured beside a server of its own that sees nothing, and has as many runs behind it: first one has some runs
at once and then the other, and in the next round the other way about. A run is of a chat that is kept, asks its model
three times, over HTTP, runs three tools and answers; its spans go to a receiver over HTTP, and a scrape comes as often
as Prometheus's own example asks for one. The model streams as fast as quick ones do, and what is judged is how much
longer a run takes. Beside it stands what it takes of the processor, of which a model's own time is no part. Ids of
requests are always given, and so in all of them.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

from tests.bench import served
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table, say
from tests.bench.served import Served
from tests.fakes.openai_server import Answer, Body, Chunks, OpenAIServer, call, chunks, finish, text, usage
from tests.fakes.otlp_receiver import OtlpReceiver
from tests.serving import request

PIECES = {FULL: 300, SMOKE: 10}
TOKENS_A_SECOND = 200
RUNS = {FULL: 4, SMOKE: 1}
"""The runs at one time."""
ROUNDS = {FULL: 12, SMOKE: 2}
MOST = 3.0
"""The most that a run may take longer, in per cent of what it takes unseen."""
SCRAPE_SECONDS = 15.0

OFF = {"METRICS": "false", "INSPECT": "false", "AUDIT": "false"}
QUOTAS = {"MAX_USER_CALLS_PER_DAY": "100000000", "MAX_USER_TOKENS_PER_DAY": "100000000000"}
ALL = {**QUOTAS, "AUDIT": "true"}


@dataclass(frozen=True)
class Seen:
    """The settings of a server, and whether its spans are sent."""

    settings: Mapping[str, str]
    is_traced: bool = False


SEEN: Mapping[str, Seen] = {
    "nothing": Seen(OFF),
    "metrics": Seen({**OFF, "METRICS": "true"}),
    "the inspector": Seen({**OFF, "INSPECT": "true"}),
    "quotas": Seen({**OFF, **QUOTAS}),
    "the audit": Seen({**OFF, "AUDIT": "true"}),
    "traces": Seen(OFF, is_traced=True),
    "traces with contents": Seen({**OFF, "TRACE_CONTENT": "true"}, is_traced=True),
    "all of these, without contents": Seen(ALL, is_traced=True),
}


# At the smallest size everything at once: it has the settings of all but one.
CHOSEN = {FULL: tuple(SEEN), SMOKE: ("all of these, without contents",)}


def answering(count: int) -> Callable[[Body], Answer]:
    """A model that makes two calls, another one, and says so many pieces of text."""

    def answer(body: Body) -> Answer:
        match sum(message["role"] == "tool" for message in body["messages"]):
            case 0:
                calls = [call("look", f'{{"shelf": {n}}}', index=n, call_id=f"c{n}") for n in range(2)]
                return chunks(*calls, finish("tool_calls"), usage(100, 10))
            case 2:
                return chunks(call("look", '{"shelf": 9}', call_id="c9"), finish("tool_calls"), usage(150, 10))
            case _:
                pieces = [text(f"word {number} ") for number in range(count)]
                return Chunks((*pieces, finish("stop"), usage(200, count)), pause_seconds=1 / TOKENS_A_SECOND)

    return answer


@dataclass(frozen=True)
class Spent:
    """What a run takes, the median of some: seconds from its request to its end, and of the processor."""

    seconds: float
    processor_seconds: float


async def measure(folder: Path, size: Size) -> list[Target]:
    """Prints the table: the same runs, unseen and seen."""
    pieces = PIECES[size]
    rows = []
    targets = []
    async with OpenAIServer(answering(pieces)) as model:
        with ExitStack() as running:
            receiver = running.enter_context(OtlpReceiver())
            for name in CHOSEN[size]:
                say(f"seen by {name} …")
                unseen, seen_ones = await _compare(folder / name, SEEN[name], model.base_url, receiver.url, size)
                more = [(one.seconds / other.seconds - 1) * 100 for one, other in zip(seen_ones, unseen, strict=True)]
                targets.append(Target(f"a run seen by {name}, longer", statistics.median(more), MOST, "%"))
                processor = [
                    milliseconds(statistics.median(one.processor_seconds for one in some))
                    for some in (unseen, seen_ones)
                ]
                rows.append((name, f"{statistics.median(more):+.2f} %", _spread(more), *processor))
    print_table(
        f"{ROUNDS[size]} × {RUNS[size]} runs at once of three requests to a model, three calls and "
        f"{pieces} pieces of text, {TOKENS_A_SECOND} a second",
        ("seen by", "longer, median of the rounds", "the middle half", "processor ms a run, unseen", "seen"),
        rows,
    )
    say(f"{len(receiver.bodies)} exports were received")
    return targets


async def _compare(
    folder: Path, seen: Seen, model_url: str, receiver_url: str, size: Size
) -> tuple[list[Spent], list[Spent]]:
    """Return what runs take unseen and seen, in each round."""
    with ExitStack() as running:
        servers = []
        for kind, how in (("unseen", SEEN["nothing"]), ("seen", seen)):
            settings = {"MODEL_BASE_URL": model_url, "MODEL": "m", **how.settings}
            with patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver_url} if how.is_traced else {}):
                [server] = running.enter_context(served.serving(folder / kind, settings))
            servers.append(server)
            await _spend(server, RUNS[size])
        scraping = asyncio.create_task(_scrape(servers))
        spent: tuple[list[Spent], list[Spent]] = ([], [])
        for number in range(ROUNDS[size]):
            for which in (0, 1) if number % 2 else (1, 0):
                spent[which].append(await _spend(servers[which], RUNS[size]))
        scraping.cancel()
    return spent


async def _spend(server: Served, runs: int) -> Spent:
    """Return what each of some runs at once takes."""
    before = _processor_seconds(server.process.pid)
    seconds = await asyncio.gather(*(_run(server) for _ in range(runs)))
    processor_seconds = (_processor_seconds(server.process.pid) - before) / runs
    return Spent(statistics.median(seconds), processor_seconds)


def _spread(percents: Sequence[float]) -> str:
    first, _, third = statistics.quantiles(percents, n=4)
    return f"{first:+.1f} … {third:+.1f} %"


def _processor_seconds(pid: int) -> float:
    """Return what the threads of a process have taken: in nanoseconds, where a clock's ticks are a run each."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def _run(server: Served) -> float:
    """Return the seconds of one run."""
    body = request(agent="errand", chat_id=uuid4().hex, message_id="m", user={"id": "ann"})
    began = time.monotonic()
    async with server.asked("POST", "/v1/runs", body) as response:
        told = await response.aread()
    if told.count(b'"tool_call_complete"') != 3 or b'"done"' not in told:
        raise AssertionError(f"not the run that was meant: {told[-500:]!r}")
    return time.monotonic() - began


async def _scrape(servers: list[Served]) -> None:
    while True:
        for server in servers:
            await server.client.get("/metrics")
        await asyncio.sleep(SCRAPE_SECONDS)
