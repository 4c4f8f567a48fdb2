"""How long one client's hostile request keeps another's waiting, by the clock; the server is a process of its own."""

import asyncio
import time
from itertools import islice
from pathlib import Path

import httpx

from tests import processes
from tests.bench.report import Target, milliseconds, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.http.hostile import Body, hostile_bodies

BODIES = {FULL: None, SMOKE: 2}
"""How many of the bodies are sent; None: all."""
MAX_DELAY_MS = 250


async def measure_hostility(folder: Path, size: Size) -> list[Target]:
    """Prints, for each body, its answer's status and the longest that a second client waited meanwhile."""
    rows = []
    longest = 0.0
    with processes.serving(folder) as (url, _):
        async with (
            httpx.AsyncClient(base_url=url, timeout=None) as first,
            httpx.AsyncClient(base_url=url, timeout=None) as second,
        ):
            for name, make in islice(hostile_bodies().items(), BODIES[size]):
                status, waited = await _measure(first, second, make())
                longest = max(longest, waited)
                rows.append((name, status, milliseconds(waited)))
    print_table("A second client, while another sends", ("what", "status", "waits ms"), rows)
    return [Target("the longest that one client's body delays another's answer", longest * 1000, MAX_DELAY_MS, "ms")]


async def _measure(first: httpx.AsyncClient, second: httpx.AsyncClient, body: Body) -> tuple[int, float]:
    path, content = body
    # The agent that a test has by this name is none of the server's own.
    named = content.replace(b'"scripted"', b'"demo"', 1)
    sending = asyncio.create_task(first.post(path, content=named, headers={"Content-Type": "application/json"}))
    longest = 0.0
    while not sending.done():
        started = time.perf_counter()
        await second.get("/v1/models")
        longest = max(longest, time.perf_counter() - started)
    return (await sending).status_code, longest
