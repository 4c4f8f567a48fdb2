"""How long one client's hostile request keeps another's waiting, by the clock; each of the three is a process."""

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from tests import processes
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table
from tests.http.hostile import Body, hostile_bodies

BODIES = {FULL: slice(None), SMOKE: slice(-2, None)}
"""Which of the bodies are sent; the last ones are small."""
MAX_DELAY_MS = 250


async def measure(folder: Path, size: Size) -> list[Target]:
    """Prints, for each body, its answer's status and the longest that a second client waited meanwhile."""
    rows = []
    longest = 0.0
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with processes.serving(folder) as (url, _):
        second = context.Process(target=ask_meanwhile, args=(url, theirs), daemon=True)
        second.start()
        try:
            async with httpx.AsyncClient(base_url=url, timeout=None) as first:
                for name, make in [*hostile_bodies().items()][BODIES[size]]:
                    status, waited = await _measure(first, ours, make())
                    longest = max(longest, waited)
                    rows.append((name, status, milliseconds(waited)))
        finally:
            second.kill()
    print_table("A second client, while another sends", ("what", "status", "waits ms"), rows)
    return [Target("the longest that one client's body delays another's answer", longest * 1000, MAX_DELAY_MS, "ms")]


def ask_meanwhile(url: str, other: Connection) -> None:
    """The second client: from each message of the first one to the next it asks; it answers with its longest wait."""
    with httpx.Client(base_url=url, timeout=None) as client:
        while True:
            other.recv()
            longest = 0.0
            while not other.poll():
                started = time.perf_counter()
                client.get("/v1/models")
                longest = max(longest, time.perf_counter() - started)
            other.recv()
            other.send(longest)


async def _measure(first: httpx.AsyncClient, second: Connection, body: Body) -> tuple[int, float]:
    path, content = body
    # The agent that a test has by this name is none of the server's own.
    named = content.replace(b'"scripted"', b'"demo"', 1)
    second.send("begin")
    answer = await first.post(path, content=named, headers={"Content-Type": "application/json"})
    second.send("end")
    return answer.status_code, await asyncio.to_thread(second.recv)
