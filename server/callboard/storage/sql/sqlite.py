"""The database in SQLite: one writer at a time, a write-ahead log, a file on one machine."""

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiosqlite
import structlog
from sqlalchemy import URL, ColumnElement, Connection, Subquery, TableClause, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from callboard._private_files import create_private_file, make_private, make_private_folder
from callboard.errors import StorageError
from callboard.storage.sql import database, sqlite_backup
from callboard.storage.sql.database import Database, T, Transaction
from callboard.storage.sql.server_file import ServerFile, are_servers_running, is_gone
from callboard.storage.sql.tables import MEMORY_WORDS, MESSAGE_WORDS
from callboard.storage.words import Term, to_fts5

CHECK_SECONDS = 5
"""The longest time that `check_integrity` waits for another writer."""
MIN_FREE_BYTES = 1024 * 1024
MAX_CHECKED_BYTES = 512 * 1024 * 1024
"""The largest file that `check_integrity` reads."""
MERGED_PAGES = 200
"""The pages of an index that one transaction merges; small, because other writes wait for it."""
SET_UP = """
PRAGMA journal_mode=WAL;
-- In WAL mode NORMAL survives a crash of the process; FULL would sync the disk at every commit.
PRAGMA synchronous=NORMAL;
PRAGMA foreign_keys=ON;
-- Overwrite deleted content; otherwise it stays in the file until its pages are reused.
PRAGMA secure_delete=ON;
"""
CONNECTIONS = 8
"""The most connections at a time; each has a thread, and a cache of up to 2 MB."""

_log = structlog.get_logger(__name__)


class _Connection(aiosqlite.Connection):
    """A connection whose thread runs whole transactions: a change of threads takes as long as a statement."""

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Future[T]":
        """Run a coroutine, which waits for nothing but this connection, in the thread."""
        done = asyncio.get_running_loop().create_future()
        self._tx.put_nowait((done, partial(_finish, begin)))
        return done

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is self._thread:
            return fn(*args, **kwargs)
        return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call] # aiosqlite has no types here


class _QueueTimeout(TimeoutError):
    """Writers before this one did not get SQLite's lock in time; handled like SQLite's own error for a lock."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


class SqliteDatabase(Database):
    """A database in a file or in memory."""

    sweep_seconds = 0.2

    insert = staticmethod(sqlite.insert)

    def __init__(self, url: URL) -> None:
        self.file = _find_file(url)
        arguments = {"async_creator_fn": _connect, "timeout": database.ATTEMPT_SECONDS}
        # Always this driver: the URL may name another one.
        asynchronous = url.set(drivername="sqlite+aiosqlite")
        super().__init__(
            create_async_engine(asynchronous, connect_args=arguments, hide_parameters=True, poolclass=NullPool)
        )
        self._server_file: ServerFile | None = None

    def _prepare_file(self) -> None:
        if self.file is None:
            return
        try:
            _make_private(self.file)
        except OSError as error:
            raise StorageError(f"CALLBOARD_DATA_DIR cannot be written: {error}") from error

    def _reset(self) -> None:
        super()._reset()
        # Not SQLAlchemy's pool, because taking a connection from it takes longer than a read.
        self._idle: list[tuple[AsyncConnection, _Connection]] = []
        # Each connection to a database in memory would have a database of its own.
        self._connections = CONNECTIONS if self.file else 1
        self._permits = asyncio.Semaphore(self._connections)
        # SQLite lets one connection write at a time, and the others poll; this lock is fair and wakes the next at once.
        self._lock = asyncio.Lock()

    async def check_integrity(self) -> None:
        """Raise `StorageError` if the file cannot be written, or is damaged and at most `MAX_CHECKED_BYTES` large."""

        def touch(connection: Connection) -> None:
            self._touch(connection)
            connection.rollback()

        await self._transact(Transaction(touch, self._begin_write), CHECK_SECONDS)

        # In another transaction, so that a running server can write during the check.
        def check(connection: Connection) -> str:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            page_bytes = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
            if pages * page_bytes > MAX_CHECKED_BYTES:
                return "ok"
            return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())

        found = await self.read(check)
        if found != "ok":
            raise StorageError(f"the database {self.where} is damaged ({found}): run `callboard restore COPY`")

    def back_up(self, copy: Path) -> None:
        """Copy the file while servers write to it."""
        sqlite_backup.back_up(self._name_file(), copy, database.PATIENCE_SECONDS)

    def restore(self, copy: Path) -> None:
        """Replace the file by a copy."""
        sqlite_backup.restore(copy, self._name_file(), database.PATIENCE_SECONDS)

    def _name_file(self) -> Path:
        if self.file is None:
            raise StorageError("the database is in the memory of one process: there is no file to copy or restore")
        return self.file

    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text: SQLite compares code points by default."""
        return text

    def find_words(self, index: TableClause, wanted: Sequence[Term]) -> Subquery:
        """Return the rows that FTS5 matches; FTS5 tables have a hidden column `rank`."""
        matches = index.c.words.match(to_fts5(wanted, stems=index is MEMORY_WORDS))
        return select(index.c.rowid, index.c.rank).where(matches).subquery()

    async def drop_deleted_words(self) -> None:
        """Merge the full-text indexes, where FTS5 only marks deleted words, and empty the log."""
        for index in (MEMORY_WORDS, MESSAGE_WORDS):
            # A negative number starts a merge of the whole index, positive numbers continue it: sqlite.org/fts5.html.
            pages = -MERGED_PAGES
            while await self.write(partial(_merge, index, pages)):
                pages = MERGED_PAGES
        await self.truncate_log()

    async def truncate_log(self) -> None:
        """Empty SQLite's log."""
        if self.file:
            # A checkpoint needs no transaction: it is the step that takes the locks.
            await self._transact(Transaction(lambda _: None, self._empty_log))

    def _empty_log(self, connection: Connection) -> None:
        is_busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        if is_busy:
            _log.warning("log_not_emptied", database=self.where, reason="another connection is reading from it")

    @asynccontextmanager
    async def hold_lease(self, server_id: str, _lease_seconds: float) -> AsyncIterator[None]:
        """Lock a file beside the database instead of a lease: the system unlocks it when the process ends."""
        if self.file is None:
            yield
            return
        self._server_file = await asyncio.to_thread(ServerFile.hold, self.file, server_id)
        try:
            yield
        finally:
            await asyncio.to_thread(self._server_file.remove)

    async def is_alone(self) -> bool:
        """Return whether no other server has a locked file; always True for a database in memory."""
        if self.file is None or self._server_file is None:
            return True
        return not await asyncio.to_thread(are_servers_running, self.file, but=self._server_file.path)

    async def find_dead_servers(self, server_ids: Collection[str]) -> set[str]:
        """Return the servers whose files are not locked; all of them for a database in memory."""
        file = self.file
        if file is None:
            return set(server_ids)
        return await asyncio.to_thread(lambda: {one for one in server_ids if is_gone(file, one)})

    async def _run(self, transaction: Transaction[T], engine: AsyncEngine) -> T:
        await self._permits.acquire()
        try:
            held = self._idle.pop() if self._idle else await _hold(engine)
        except BaseException:
            self._permits.release()
            raise

        def run(alone: Connection) -> T:
            try:
                return transaction.run(alone)
            finally:
                alone.rollback()

        def release(_: object) -> None:
            self._idle.append(held)
            self._permits.release()

        connection, driver = held
        running = driver.run(partial(connection.run_sync, run))
        running.add_done_callback(release)
        # After a cancellation of the caller the thread still uses the connection.
        return await asyncio.shield(running)

    async def _dispose(self) -> None:
        # A transaction whose caller was cancelled may still be running.
        for _ in range(self._connections):
            await self._permits.acquire()
        while self._idle:
            connection, _ = self._idle.pop()
            await connection.close()
        for _ in range(self._connections):
            self._permits.release()

    def _touch(self, connection: Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        # Setting the same value also writes a page.
        connection.exec_driver_sql(f"PRAGMA user_version = {version:d}")

    def _check_free_space(self) -> None:
        if self.file is None:
            return
        with suppress(OSError):
            if shutil.disk_usage(self.file.parent).free < MIN_FREE_BYTES:
                raise self._make_failure("its disk is full")

    @asynccontextmanager
    async def _write_lock(self, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._lock.acquire()
        except TimeoutError as error:
            raise _QueueTimeout from error
        try:
            yield
        finally:
            self._lock.release()

    def _begin_write(self, connection: Connection, _writes: int = 1) -> None:
        # Explicitly, because the driver begins no transaction before DDL: a migration would not be atomic.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


async def _hold(engine: AsyncEngine) -> tuple[AsyncConnection, _Connection]:
    connection = await engine.connect()
    driver = (await connection.get_raw_connection()).driver_connection
    assert isinstance(driver, _Connection)
    return connection, driver


async def _connect(database: str, **options: Any) -> _Connection:
    connection = _Connection(partial(_open, database, **options), iter_chunk_size=1)
    # It must not keep the process alive.
    connection._thread.daemon = True
    try:
        await connection
    except BaseException:
        # The end of the thread still uses the event loop.
        await asyncio.to_thread(connection._thread.join)
        raise
    return connection


def _open(database: str, **options: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = sqlite3.connect(database, **options)
    try:
        connection.executescript(SET_UP)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _finish(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        begin().send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("a transaction waited for the event loop")


def _merge(index: TableClause, pages: int, connection: Connection) -> bool:
    """Merge segments of an index, which removes deleted words; return whether there is more to merge."""
    count = "SELECT total_changes()"
    before = connection.exec_driver_sql(count).scalar_one()
    connection.exec_driver_sql(f"INSERT INTO {index.name} ({index.name}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608 - our own names
    # https://www.sqlite.org/fts5.html#the_merge_command: a difference below 2 means that nothing was merged.
    return bool(connection.exec_driver_sql(count).scalar_one() - before >= 2)


def _find_file(url: URL) -> Path | None:
    """Return the file of a SQLite URL; None for a database in memory."""
    name = url.database or ""
    if name.startswith("file:") and "uri" in url.query:
        name = "" if url.query.get("mode") == "memory" else unquote(urlsplit(name).path)
    # SQLite resolves symbolic links, and puts its other files beside the target.
    return Path(name).resolve() if name not in ("", ":memory:") else None


def _make_private(file: Path) -> None:
    """Create the file if it does not exist, and let only its owner read and write it.

    SQLite creates files according to the umask, and the files beside the database with the mode of the database.
    """
    make_private_folder(file.parent)
    try:
        os.close(create_private_file(file))
    except FileExistsError:
        # Do not open the file: closing it would release the locks of other connections of this process.
        for suffix in sqlite_backup.SUFFIXES:
            make_private(sqlite_backup.add_suffix(file, suffix))
