"""The memory that the server's process takes for files, texts, calls and listeners, as the system counts it."""

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests import processes
from tests.bench.agents import FILES
from tests.bench.report import FULL, SMOKE, Size, Target, print_table
from tests.bench.served import AGENTS, UNLIMITED

USERS = 5
MEMORY_MIB = 512
"""What `RUN_MEMORY_MIB` allows; the process itself takes some 110 MiB."""
MAX_RESIDENT_MIB = 2 * MEMORY_MIB
MAX_LEFT_MIB = 256
WAIT_SECONDS = {FULL: 60, SMOKE: 0}
"""From the end of the load to the last measurement; a client that reads nothing is cut off after 30 s."""
AFTER_ALL = 10**9
"""A number that no event has."""


@dataclass(frozen=True, slots=True)
class Load:
    """Runs of an agent of `agents`, `at_once` at a time; `amount` is the question."""

    what: str
    agent: str
    amount: int
    runs: int
    at_once: int
    is_read: bool = True


LOADS = {
    FULL: [
        Load(f"{FILES} files of 20 MiB", "filing", 20, 90, 5),
        Load("texts of 7 MiB", "writing", 7, 220, 10),
        Load("texts of 7 MiB that nobody reads", "writing", 7, 30, 30, is_read=False),
        Load("200 calls", "calling", 200, 100, 100),
        Load("20 lines in 2 s", "paced", 20, 1_000, 1_000),
    ],
    SMOKE: [
        Load(f"{FILES} files of 1 MiB", "filing", 1, 2, 2),
        Load("texts of 1 MiB that nobody reads", "writing", 1, 2, 2, is_read=False),
        Load("2 calls", "calling", 2, 2, 2),
    ],
}


async def measure(folder: Path, size: Size) -> list[Target]:
    """Print the resident memory before, at most and after each load."""
    rows = []
    targets = []
    for number, load in enumerate(LOADS[size]):
        before, most, after = await _measure(folder / str(number), load, WAIT_SECONDS[size])
        rows.append((f"{load.runs} runs, {load.at_once} at once: {load.what}", before, most, after))
        targets.append(Target(f"resident memory at most, {load.what}", most, MAX_RESIDENT_MIB, "MiB"))
        targets.append(Target(f"resident memory after a minute, {load.what}", after, MAX_LEFT_MIB, "MiB"))
    title = f"Resident memory, RUN_MEMORY_MIB={MEMORY_MIB}, {USERS} users"
    print_table(title, ("load", "before MiB", "at most MiB", f"after {WAIT_SECONDS[size]} s MiB"), rows)
    return targets


async def _measure(folder: Path, load: Load, wait_seconds: float) -> tuple[int, int, int]:
    with processes.serving(folder, AGENTS=AGENTS, RUN_MEMORY_MIB=str(MEMORY_MIB), **UNLIMITED) as (url, command):
        processes.discard(command.stderr)
        before = read_mib(command.pid, "VmRSS")
        room = asyncio.Semaphore(load.at_once)
        async with (
            httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits()) as client,
            AsyncExitStack() as unread,
        ):

            async def ask(number: int) -> None:
                run_id = f"run-{number}"
                asked = [{"role": "user", "content": str(load.amount)}]
                user = {"id": f"user {number % USERS}"}
                chat = {"chat_id": f"chat {number}", "messages": asked, "user": user}
                body = {"agent": load.agent, "run_id": run_id, **chat}
                async with room:
                    response = await unread.enter_async_context(client.stream("POST", "/v1/runs", json=body))
                    response.raise_for_status()
                    if load.is_read:
                        async for _ in response.aiter_raw():
                            pass
                    else:
                        # Gets no event, and ends with the run.
                        await client.get(f"/v1/runs/{run_id}/events", params={"after": AFTER_ALL})

            await asyncio.gather(*map(ask, range(load.runs)))
            await asyncio.sleep(wait_seconds)
            return before, read_mib(command.pid, "VmHWM"), read_mib(command.pid, "VmRSS")


def read_mib(pid: int, name: str) -> int:
    """Return a figure of the process's status, in MiB."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1)) // 1024
