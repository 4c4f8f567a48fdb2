"""Real trouble for a real SQLite file: another program's lock, no room."""

import asyncio
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine

HOLD_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@asynccontextmanager
async def locked_by_another_program(database: Path) -> AsyncIterator[None]:
    """Another process has the write lock, until the end."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLD_LOCK,
        str(database),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin
    assert program.stdout
    assert await program.stdout.readline() == b"locked\n"
    try:
        yield
    finally:
        program.stdin.write(b"\n")
        await program.communicate()


_is_disk_full = threading.Event()


@contextmanager
def no_room_on_the_disk() -> Iterator[None]:
    """SQLite's own way to say "no more room": the next page that a database needs is refused like a full disk's."""
    _is_disk_full.set()
    try:
        yield
    finally:
        _is_disk_full.clear()


# Never removed: a thread may be calling the listeners.
@event.listens_for(Engine, "begin")
def _limit(connection: Connection) -> None:
    """Take the room of a connection, or give it back, also if it was in use when the trouble ended."""
    if connection.dialect.name == "sqlite":
        pages = 1 if _is_disk_full.is_set() else 1073741823
        connection.connection.cursor().execute(f"PRAGMA max_page_count = {pages}")


@contextmanager
def no_large_files() -> Iterator[None]:
    """No file of this process is written beyond its first 64 KiB: the kernel refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Without a handler of its own the signal would end the process.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def refusals(wanted: int) -> Iterator[asyncio.Event]:
    """An event that is set when the lock was refused so many times."""
    reached = asyncio.Event()
    count = 0

    def see(context: Any) -> None:
        nonlocal count
        count += "locked" in str(context.original_exception)
        if count >= wanted:
            reached.set()

    event.listen(Engine, "handle_error", see)
    try:
        yield reached
    finally:
        event.remove(Engine, "handle_error", see)
