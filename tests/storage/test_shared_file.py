"""An SQLite file that other processes have open too: they lose no data."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import Connection

from callboard._history import HistoryCall, NewResponse, Turn
from callboard.storage import Store
from callboard.storage.sql.personal import Records
from callboard.storage.sql.server_file import ServerFile, are_servers_running, is_gone
from tests.storage.shared_file import another_program, another_server, forking_server
from tests.storage.turns import StoredSteps

pytestmark = pytest.mark.timeout(120)

CHECKPOINTS = 10


@pytest.fixture
async def store(database: Path) -> AsyncIterator[Store]:
    opened = await Store.open(url_of(database))
    yield opened
    await opened.close()


async def value_of(records: Records, key: str) -> object:
    found = await records.get(key)
    return found.value if found else None


def url_of(database: Path) -> str:
    return f"sqlite:///{database}"


def wait_for_checkpoint(database: Path) -> None:
    """Return in the middle of the next checkpoint, which is the only writer of the database file itself."""
    before = database.stat().st_mtime_ns
    while database.stat().st_mtime_ns == before:
        pass


async def test_a_response_is_stored_although_another_program_makes_a_checkpoint(store: Store, database: Path) -> None:
    asked = NewResponse(None, [{"role": "user", "content": "hi"}])
    journal = StoredSteps(store, Turn("own:run", "run", None, "ann", "hi", response=asked))
    await journal.begin()
    await journal.call_started(HistoryCall("a", "sell", "{}", 0, 0), "")
    async with another_program(database) as other:
        await other.execute("PRAGMA wal_checkpoint")
    await journal.call_ended("a", "sold", None, 5)
    await journal.finish("Sold.", is_answered=True)
    assert [message.role for message in await store.chats("ann").messages("own:run")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert await store.responses("ann").load("run") is not None


@pytest.mark.slow
async def test_a_reader_loses_no_data_of_a_server_stopped_during_a_checkpoint(store: Store, database: Path) -> None:
    looked_for = store.records("numbers", "ann")
    async with another_server(url_of(database)) as server:
        await server.hear()
        for _ in range(CHECKPOINTS):
            wait_for_checkpoint(database)
            server.process.send_signal(signal.SIGSTOP)
            await looked_for.get("0")
            server.process.send_signal(signal.SIGCONT)
            await looked_for.get("0")
        last = int(await server.hear())
        server.process.kill()
        await server.process.wait()
    for place in range(5):
        match await value_of(looked_for, str(place)):
            case [int(number), _]:
                assert number >= last
            case other:
                pytest.fail(f"{other!r} is kept")


async def test_closing_a_store_keeps_the_locks_of_another_store_in_the_process(store: Store, database: Path) -> None:
    transaction = HeldTransaction()
    closed = await Store.open(url_of(database))
    writing = asyncio.create_task(store.database.write(transaction.hold))
    await asyncio.to_thread(transaction.began.wait)
    await closed.close()
    async with another_program(database) as other:
        assert "database is locked" in await other.execute("BEGIN IMMEDIATE")
    transaction.goes_on.set()
    await writing


def test_a_server_whose_file_cannot_be_opened_counts_as_running() -> None:
    with TemporaryDirectory() as folder:
        database = Path(folder, "callboard.db")
        database.parent.chmod(0o777)
        held = ServerFile.hold(database, "another-user's")
        held.path.chmod(0)
        with nobody():
            assert not is_gone(database, "another-user's")
            assert are_servers_running(database)
        held.remove()


class HeldTransaction:
    """A transaction that has begun to write and waits until the test lets it continue."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.goes_on = threading.Event()

    def hold(self, connection: Connection) -> None:
        """Write something, and wait."""
        connection.exec_driver_sql("CREATE TABLE held (number)")
        self.began.set()
        assert self.goes_on.wait(60)


@contextmanager
def nobody() -> Iterator[None]:
    """Run the block as a user without privileges, who cannot open a file of the mode 0."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


async def test_a_killed_server_counts_as_dead_although_its_forked_child_is_running(database: Path) -> None:
    async with forking_server(database) as server:
        assert await server.hear() == "forked"
        assert not is_gone(database, "forking")
        server.process.kill()
        # Not `wait`, which waits for the pipes that the child has too.
        while server.process.returncode is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert is_gone(database, "forking")
