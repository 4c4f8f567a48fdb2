"""The memory that the server's process takes while runs return large files, as the system counts it."""

import asyncio
import re
from pathlib import Path

import httpx

from tests import processes
from tests.bench.filing_agent import FILES
from tests.bench.report import Target, print_table
from tests.bench.size import FULL, SMOKE, Size

RUNS = {FULL: 90, SMOKE: 2}
FILE_MIB = {FULL: 20, SMOKE: 1}
USERS = 5
AT_ONCE = 5
MEMORY_MIB = 512
"""What `RUN_MEMORY_MIB` allows; the process itself takes some 110 MiB."""
MAX_RESIDENT_MIB = 640


async def measure_filing(folder: Path, size: Size) -> list[Target]:
    """Print the resident memory before, at most and after."""
    agents = str(Path(__file__).with_name("filing_agent.py"))
    with processes.serving(folder, AGENTS=agents, RUN_MEMORY_MIB=str(MEMORY_MIB)) as (url, command):
        processes.discard(command.stderr)
        before = read_mib(command.pid, "VmRSS")
        room = asyncio.Semaphore(AT_ONCE)
        async with httpx.AsyncClient(base_url=url, timeout=None) as client:

            async def ask(number: int) -> None:
                asked = [{"role": "user", "content": str(FILE_MIB[size])}]
                body = {"agent": "filing", "chat_id": f"chat {number}", "user": {"id": f"user {number % USERS}"}}
                async with room:
                    (await client.post("/v1/runs", json={**body, "messages": asked})).raise_for_status()

            await asyncio.gather(*map(ask, range(RUNS[size])))
        most = read_mib(command.pid, "VmHWM")
        after = read_mib(command.pid, "VmRSS")
    title = f"Resident memory, {RUNS[size]} runs with {FILES} files of {FILE_MIB[size]} MiB, {AT_ONCE} at a time"
    print_table(title, ("before MiB", "at most MiB", "after MiB"), [(before, most, after)])
    return [Target("resident memory at most", most, MAX_RESIDENT_MIB, "MiB")]


def read_mib(pid: int, name: str) -> int:
    """Return a figure of the process's status, in MiB."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1)) // 1024
