"""How many answers survive a server that is killed (SIGKILL) in the middle of them.

An answer is text in rounds, each of which ends with a call that has an effect. The answers begin one after the other,
so that the kill finds each in a different place. The server is started again at once; if there are two, the first has
all answers, and the second takes them over.
"""

import asyncio
import json
import random
import re
import signal
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import uuid4

from callboard_protocol import Done
from tests.bench.agents import ORDER_SECONDS
from tests.bench.report import FULL, SMOKE, Size, Target, print_table, say
from tests.bench.served import AGENTS, ENGINES, UNLIMITED
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.faults.balancer import Balancer
from tests.faults.campaign import text_of
from tests.faults.fleet import Server
from tests.faults.listener import Listener, LostAnswer
from tests.serving import request

SERVERS: Mapping[Size, Mapping[str, int]] = {
    FULL: {"SQLite": 1, "PostgreSQL": 2, "PostgreSQL with Redis": 2},
    SMOKE: {"SQLite": 2},
}
ANSWERS = {FULL: 20, SMOKE: 2}
LEASE_SECONDS = {FULL: "10", SMOKE: "1"}
END_SECONDS = 150
"""The longest that an answer may take, with the end of its server."""
ROUNDS = 3
"""Each of them ends with a call; a last text follows."""
PIECES = 12
PIECE_SECONDS = 0.05
ANSWER_SECONDS = (ROUNDS + 1) * PIECES * PIECE_SECONDS + ROUNDS * ORDER_SECONDS
PIECE = re.compile(r"\[\S+?\]")


def script(body: Body) -> Answer:
    """Answer as the model does: all that it says follows from the question and the results that it has."""
    messages = body["messages"]
    asked = max(place for place, message in enumerate(messages) if message["role"] == "user")
    question = str(messages[asked]["content"])
    ended = sum(message["role"] == "tool" for message in messages[asked:])
    parts = [text(piece) for piece in _pieces(question, ended)]
    if ended < ROUNDS:
        order = json.dumps({"order": f"{question}.{ended}"})
        parts += [call("place", order, call_id=f"call_{uuid4().hex}"), finish("tool_calls")]
    else:
        parts += [finish("stop")]
    return chunks(*parts, pause_seconds=PIECE_SECONDS)


def _pieces(question: str, round_index: int) -> list[str]:
    return [f"[{question}.{round_index}.{number}] " for number in range(PIECES)]


def is_whole(listener: Listener) -> bool:
    """Return whether the whole answer was received, each piece of it once."""
    question = listener.body["messages"][-1]["content"]
    wanted = [piece.strip() for round_index in range(ROUNDS + 1) for piece in _pieces(question, round_index)]
    return (
        listener.ended and isinstance(listener.events[-1], Done) and PIECE.findall(text_of(listener.events)) == wanted
    )


async def measure(folder: Path, size: Size) -> list[Target]:
    """Print the table: every answer must be whole in the end, and no effect of its tools be doubled."""
    rows = []
    targets = []
    answers = ANSWERS[size]
    for name, count in SERVERS[size].items():
        say(f"{name}, {count} …")
        own = folder / name
        own.mkdir()
        with ENGINES[name](own) as engine:
            settings = {**engine.settings, "LEASE_SECONDS": LEASE_SECONDS[size], "BENCH_PLACED": str(own / "placed")}
            listeners, cut, killed_at = await _kill(own, settings, count, answers)
        placed = Counter((own / "placed").read_text().splitlines())
        whole = sum(map(is_whole, listeners))
        doubled = sum(times > 1 for times in placed.values())
        ends = sorted(listener.times[-1] - killed_at for listener in listeners if listener.times)
        seconds = (f"{end:.1f}" for end in (statistics.median(ends), ends[-1]))
        rows.append((name, count, cut, whole, doubled, answers * ROUNDS - len(placed), *seconds))
        targets.append(Target(f"{name}: whole answers", whole, answers, "answers", at_least=True))
        targets.append(Target(f"{name}: effects that happened twice", doubled, 0, "effects"))
    print_table(
        f"{answers} answers with {ROUNDS} calls each, their server killed; leases of {LEASE_SECONDS[size]} s",
        ("store", "servers", "cut", "whole", "ran twice", "did not run", "ended p50 s", "all ended s"),
        rows,
    )
    return targets


async def _kill(
    folder: Path, settings: Mapping[str, str], count: int, answers: int
) -> tuple[Sequence[Listener], int, float]:
    """Kill the server that has all answers, and start it again.

    Return the listeners when all answers have ended, the number of answers that were cut, and the time of the kill.
    """
    async with AsyncExitStack() as closing:
        model = await closing.enter_async_context(OpenAIServer(script))
        balancer = await closing.enter_async_context(Balancer(random.Random(0)).listening())
        of_all = {"AGENTS": AGENTS, "MODEL_BASE_URL": model.base_url, "MODEL": "m", **UNLIMITED, **settings}
        servers = [
            Server(number, folder / str(number), of_all, folder / f"{number}.log", balancer) for number in range(count)
        ]
        for server in servers:
            await server.start()
            closing.push_async_callback(server.end, signal.SIGKILL)
        first, *others = servers
        for server in others:
            balancer.drop(server.name)
        listeners = [Listener(balancer.url, _body(f"q{number}")) for number in range(answers)]
        async with asyncio.timeout(END_SECONDS), asyncio.TaskGroup() as listening:
            tasks = []
            for listener in listeners:
                tasks.append(listening.create_task(_listen(listener)))
                await asyncio.sleep(ANSWER_SECONDS / answers)
            cut = sum(not task.done() for task in tasks)
            killed_at = time.monotonic()
            await first.end(signal.SIGKILL)
            for server in others:
                balancer.add(server.name, server.port)
            await first.start()
        return listeners, cut, killed_at


def _body(question: str) -> dict[str, object]:
    asked = request(agent="clerk", messages=[{"role": "user", "content": question}], user={"id": question})
    return {**asked, "run_id": f"run-{question}", "chat_id": f"chat-{question}", "message_id": "message"}


async def _listen(listener: Listener) -> None:
    with suppress(LostAnswer):
        await listener.start()
