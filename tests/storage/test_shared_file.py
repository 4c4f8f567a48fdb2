"""An SQLite file that others have open too: what is theirs stays theirs, whatever a store takes the file for."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from callboard._history import HistoryCall, NewResponse, Turn
from callboard.errors import StorageError
from callboard.storage.sql import SqlStore
from callboard.storage.sql.personal import SqlRecords
from callboard.storage.sql.server_file import ServerFile
from tests.storage.shared_file import another_program, another_server, forking_server

pytestmark = pytest.mark.timeout(120)

FILLER_BYTES = 400_000
CHECKPOINTS = 10


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqlStore]:
    opened = await SqlStore.open(url_of(database))
    yield opened
    await opened.close()


async def value_of(records: SqlRecords, key: str) -> object:
    found = await records.get(key)
    return found.value if found else None


def url_of(database: Path) -> str:
    return f"sqlite:///{database}"


def log_of(database: Path) -> os.stat_result:
    return database.with_name(f"{database.name}-wal").stat()


def size_of(database: Path) -> int:
    return database.stat().st_size


def wait_for_checkpoint(database: Path) -> None:
    """Return in the middle of the next checkpoint: it alone writes into the file itself."""
    before = database.stat().st_mtime_ns
    while database.stat().st_mtime_ns == before:
        pass


async def test_a_checkpoint_that_breaks_off_twice_is_not_taken_for_a_copy_over_the_file(
    store: SqlStore, database: Path
) -> None:
    records = store.records("notes", "ann")
    await records.put("first", 1)
    # Who is told that no server is there makes the checkpoint itself.
    server_file = ServerFile.hold(database, "other")
    async with another_program(database) as other:
        await other.execute("CREATE TABLE filler (bytes)")
        await other.execute(f"INSERT INTO filler VALUES (randomblob({FILLER_BYTES}))")
        log = log_of(database).st_ino
        size = size_of(database)
        for most_bytes in (size + FILLER_BYTES // 4, size + FILLER_BYTES // 2):
            assert "disk I/O error" in await other.execute("PRAGMA wal_checkpoint(PASSIVE)", most_bytes)
            assert size_of(database) > size
            assert await value_of(records, "first") == 1
            assert log_of(database).st_ino == log
        await other.execute("INSERT INTO filler VALUES ('kept')")
    server_file.remove()
    async with another_program(database) as later:
        assert await later.execute("SELECT count(*) FROM filler") == "[(2,)]"
        assert await later.execute("PRAGMA integrity_check") == "[('ok',)]"


async def test_a_response_in_whose_middle_another_program_makes_a_checkpoint_is_kept(
    store: SqlStore, database: Path
) -> None:
    asked = NewResponse(None, [{"role": "user", "content": "hi"}])
    journal = store.journal(Turn("own:run", "run", None, "ann", "hi", response=asked))
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


async def test_whoever_looks_on_takes_nothing_from_a_server_that_is_stopped_in_the_middle_of_its_checkpoints(
    store: SqlStore, database: Path
) -> None:
    looked_for = store.records("numbers", "ann")
    async with another_server(url_of(database)) as server:
        await server.hear()
        log = log_of(database).st_ino
        with structlog.testing.capture_logs() as logged:
            for _ in range(CHECKPOINTS):
                wait_for_checkpoint(database)
                server.process.send_signal(signal.SIGSTOP)
                await looked_for.get("0")
                server.process.send_signal(signal.SIGCONT)
                await looked_for.get("0")
        last = int(await server.hear())
        assert log_of(database).st_ino == log
        server.process.kill()
        await server.process.wait()
    for place in range(5):
        match await value_of(looked_for, str(place)):
            case [int(number), _]:
                assert number >= last
            case other:
                pytest.fail(f"{other!r} is kept")
    assert "database_reopened" not in [line["event"] for line in logged]


async def test_a_file_that_was_written_over_is_refused_while_another_server_uses_it_and_then_opened_anew(
    store: SqlStore, database: Path, tmp_path: Path
) -> None:
    records = store.records("notes", "ann")
    await records.put("copied", 1)
    await asyncio.to_thread(store.database.back_up, tmp_path / "copy")
    async with another_server(url_of(database)) as server:
        await server.hear()
        server.process.send_signal(signal.SIGSTOP)
        await records.put("later", 2)
        log = log_of(database).st_ino
        shutil.copyfile(tmp_path / "copy", database)
        with pytest.raises(StorageError, match="several servers use it: stop them, put the copy back again"):
            await records.get("copied")
        assert log_of(database).st_ino == log
        server.process.kill()
        await server.process.wait()
    assert await value_of(records, "copied") == 1
    assert await value_of(records, "later") is None


async def test_a_copy_over_a_file_whose_log_a_killed_server_has_left_is_found(database: Path, tmp_path: Path) -> None:
    async with another_server(url_of(database)) as server:
        await server.hear()
        server.process.kill()
        await server.process.wait()
    assert log_of(database).st_size > 0
    store = await SqlStore.open(url_of(database))
    records = store.records("notes", "ann")
    await asyncio.to_thread(store.database.back_up, tmp_path / "copy")
    await records.put("later", 2)
    shutil.copyfile(tmp_path / "copy", database)
    assert await value_of(records, "later") is None
    await records.put("after", 3)
    await store.close()
    async with another_program(database) as later:
        assert await later.execute("PRAGMA integrity_check") == "[('ok',)]"


async def test_a_server_that_was_killed_is_gone_though_a_process_that_its_tool_forked_is_not(database: Path) -> None:
    async with forking_server(database) as server:
        assert await server.hear() == "forked"
        assert not ServerFile.is_free(database, "forking")
        server.process.kill()
        # Not `wait`, which waits for the pipes that the child has too.
        while server.process.returncode is None:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        assert ServerFile.is_free(database, "forking")
