"""Other processes with the same SQLite file open: a program that runs given statements, or a writing server."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0.1)
connection.execute("PRAGMA wal_autocheckpoint=0")
for line in sys.stdin:
    try:
        said = connection.execute(json.loads(line)).fetchall()
    except sqlite3.OperationalError as error:
        said = str(error)
    print(repr(said), flush=True)
"""

SERVER = """
import asyncio, sys
from callboard.storage import Store
async def write():
    store = await Store.open(sys.argv[1])
    records = store.records("numbers", "ann")
    async with store.stored_runs("writer").open(10, print):
        number = 0
        while True:
            await asyncio.gather(*(records.put(str(place), [number, "x" * 50_000]) for place in range(5)))
            print(number, flush=True)
            number += 1
asyncio.run(write())
"""


FORKING = """
import os, sys
from pathlib import Path
from callboard.storage.sql.server_file import ServerFile
file = ServerFile.hold(Path(sys.argv[1]), "forking")
child = os.fork()
if child == 0:
    # As a pool of processes that a tool keeps: it ends with this one's input, and not with its server.
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """The other process."""

    process: asyncio.subprocess.Process

    async def hear(self) -> str:
        """Return the next line of its output."""
        assert self.process.stdout
        line = await self.process.stdout.readline()
        assert line, "the other process has ended"
        return line.decode().strip()

    async def execute(self, statement: str) -> str:
        """Let the program run a statement; return its answer."""
        return await self.say(json.dumps(statement))

    async def say(self, line: str) -> str:
        """Send it a line and return its answer."""
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        return await self.hear()


@asynccontextmanager
async def another_program(database: Path) -> AsyncIterator[OtherProcess]:
    """A program that uses SQLite without Callboard."""
    async with _running(PROGRAM, str(database)) as other:
        yield other


@asynccontextmanager
async def another_server(url: str) -> AsyncIterator[OtherProcess]:
    """A server that writes continuously, and prints the number of each stored round of five values."""
    async with _running(SERVER, url) as other:
        yield other


@asynccontextmanager
async def forking_server(database: Path) -> AsyncIterator[OtherProcess]:
    """A server that holds the server file `forking`; its forked child prints a line and outlives it."""
    async with _running(FORKING, str(database)) as other:
        assert other.process.stdin
        try:
            yield other
        finally:
            other.process.stdin.close()


@asynccontextmanager
async def _running(script: str, *arguments: str) -> AsyncIterator[OtherProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield OtherProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
