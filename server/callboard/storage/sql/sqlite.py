"""SQLite's own: one writer, a write-ahead log, a file that belongs to one machine."""

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool, StaticPool

from callboard._private_files import create_private_file, make_private, make_private_folder
from callboard.errors import StorageError
from callboard.storage.sql import database, sqlite_backup
from callboard.storage.sql.database import Database, T, Transaction, Work
from callboard.storage.sql.open_file import REPLACED, OpenFile, add_suffix, check_log
from callboard.storage.sql.server_file import ServerFile
from callboard.storage.sql.sqlite_dialect import SqliteDialect
from callboard.storage.sql.tables import MEMORY_WORDS, MESSAGE_WORDS, WordIndex

CHECK_SECONDS = 5
"""The seconds that `check_integrity` waits for another program that writes."""
LEAST_FREE_BYTES = 1024 * 1024
MOST_EXAMINED_BYTES = 512 * 1024 * 1024
MERGED_PAGES = 200
"""The pages of an index that are merged in one transaction, for which others wait."""
THREADS = 15
"""The most connections at one time."""

_log = structlog.get_logger(__name__)


class _CrowdedOut(sqlite3.OperationalError):
    """A failure, of those before us in the queue, to get SQLite's lock in time: what SQLite itself would say."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


class SqliteDatabase(Database):
    """A database in a file, or in memory. A file that somebody removes or replaces is neither read nor written."""

    dialect = SqliteDialect()
    # It also makes one transaction of a migration: the driver begins none by itself before a change of the
    # tables, and a server that was stopped in between would leave half of them.
    exclusive_lock = "BEGIN IMMEDIATE"
    sweep_seconds = 0.2

    def __init__(self, url: URL) -> None:
        super().__init__(url)
        self._opened: OpenFile | None = None
        self._server_file: ServerFile | None = None
        self._make_locks()

    @property
    def file(self) -> Path | None:
        """The file; None for a database in memory."""
        return _find_file(self._engine.url)

    @property
    def is_of_one_process(self) -> bool:
        """True: one server owns the file, and a database in memory is one process's anyway."""
        return True

    async def start(self) -> None:
        """Create the file if there is none, open it and migrate."""
        self._make_locks()
        await super().start()

    async def _open_file(self) -> None:
        if self.file is None:
            return
        try:
            _make_private(self.file)
            self._opened = await asyncio.to_thread(OpenFile.open, self.file, database.PATIENCE_SECONDS)
        except OSError as error:
            raise StorageError(f"CALLBOARD_DATA_DIR cannot be written: {error}") from error

    def _check_file(self) -> None:
        if self._opened:
            if self._opened.is_replaced():
                raise self._make_failure(REPLACED)
        elif self.file:
            # `callboard doctor` reads a database that is not started.
            check_log(self.file)

    def _make_locks(self) -> None:
        """Make what belongs to one event loop."""
        # A connection at a time each: threads wait for statements, and the loop for none of them.
        self._threads = ThreadPoolExecutor(THREADS if self.file else 1, thread_name_prefix="sqlite")
        # SQLite lets one connection write at a time and its waiters poll; a queue of our own is
        # fair and wakes at once.
        self._writer = asyncio.Lock()

    async def close(self) -> None:
        """Write what waits to be written, if it can be, and close the file."""
        await super().close()
        if self._opened:
            await asyncio.to_thread(self._opened.close)
            self._opened = None

    async def check_integrity(self) -> None:
        """Raise `StorageError` where the file cannot be written or is damaged; a large one is not read."""

        def touch(connection: Connection) -> None:
            self._touch(connection)
            connection.rollback()

        with self._translate_failures():
            await self._run_when_free(Transaction(self._begin_exclusive, [touch]), time.monotonic() + CHECK_SECONDS)

        # Not in the same transaction: a server may be at work, and wants to write.
        def check(connection: Connection) -> str:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            page_bytes = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
            if pages * page_bytes > MOST_EXAMINED_BYTES:
                return "ok"
            return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())

        found = await self.read(check)
        if found != "ok":
            raise StorageError(f"the database {self.where} is damaged ({found}): run `callboard restore COPY`")

    def back_up(self, copy: Path) -> None:
        """Copy the file while servers write to it."""
        sqlite_backup.back_up(self._name_file(), copy, database.PATIENCE_SECONDS)

    def restore(self, copy: Path) -> None:
        """Put a copy in the place of the file."""
        sqlite_backup.restore(copy, self._name_file())

    def _name_file(self) -> Path:
        if self.file is None:
            raise StorageError("the database is in the memory of one process: there is no file to copy or restore")
        return self.file

    async def drop_deleted_words(self) -> None:
        """Write the indexes of words anew, which only mark what is deleted, and empty the log."""
        for index in (MEMORY_WORDS, MESSAGE_WORDS):
            # A negative number begins to merge all that there is, positive ones go on with it.
            pages = -MERGED_PAGES
            while await self.write(partial(_merge, index, pages)):
                pages = MERGED_PAGES
        await self.truncate_log()

    async def truncate_log(self) -> None:
        """Empty SQLite's log."""
        if self.file:
            await self._transact(Transaction(self._empty_log, []))

    def _empty_log(self, connection: Connection) -> None:
        is_busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        if is_busy:
            _log.warning("log_not_emptied", database=self.where, reason="somebody reads what is in it")

    @asynccontextmanager
    async def hold_lease(self, server_id: str, _lease_seconds: float) -> AsyncIterator[None]:
        """Hold a file beside the database, in a lease's place: the system lets go of it when the process ends."""
        if self.file is None:
            yield
            return
        self._server_file = await asyncio.to_thread(ServerFile.hold, self.file, server_id)
        try:
            yield
        finally:
            await asyncio.to_thread(self._server_file.remove)

    def was_alone(self) -> bool:
        """Return True: as long as the process is there it has its file."""
        return True

    async def is_alone(self) -> bool:
        """Return whether there is no other server's file; of a database in memory there is no other server."""
        file = self._server_file
        return file is None or await asyncio.to_thread(file.is_alone)

    async def find_dead_servers(self, server_ids: Collection[str]) -> set[str]:
        """Return those whose files nobody holds; of a database in memory there is no other server."""
        file = self.file
        if file is None:
            return set(server_ids)
        return await asyncio.to_thread(lambda: {one for one in server_ids if ServerFile.is_gone(file, one)})

    def _create_engine(self, url: URL) -> Engine:
        # A connection goes from thread to thread, and has one at a time.
        arguments = {"timeout": database.ATTEMPT_SECONDS, "check_same_thread": False}
        pool = QueuePool if _find_file(url) else StaticPool
        # Whatever driver an address names, for a file it is Python's own.
        self._engine = create_engine(
            url.set(drivername="sqlite"), connect_args=arguments, poolclass=pool, hide_parameters=True
        )
        return self._engine

    async def _run(self, work: Work[T]) -> T:
        def run() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        running = asyncio.get_running_loop().run_in_executor(self._threads, run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The connection is in use until the thread is done with it.
            await asyncio.wait({running})
            raise

    async def _dispose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._engine.dispose)

    def _set_up(self, connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # In WAL mode NORMAL survives a crash of the process; FULL would sync the disk at every status.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        # What is deleted is written over: else it stays in the file until its pages are used again.
        cursor.execute("PRAGMA secure_delete=ON")
        cursor.close()

    def _touch(self, connection: Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        # What it is already: even so a page is written.
        connection.exec_driver_sql(f"PRAGMA user_version = {version:d}")

    def _check_free_space(self) -> None:
        if self.file is None:
            return
        with suppress(OSError):
            if shutil.disk_usage(self.file.parent).free < LEAST_FREE_BYTES:
                raise self._make_failure("its disk is full")

    @asynccontextmanager
    async def _turn_to_write(self, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._writer.acquire()
        except TimeoutError as error:
            raise OperationalError(None, None, _CrowdedOut()) from error
        try:
            yield
        finally:
            self._writer.release()

    def _begin_to_write(self, connection: Connection) -> None:
        self._begin_exclusive(connection)


def _merge(index: WordIndex, pages: int, connection: Connection) -> bool:
    """Merge some of an index's parts, which drops what was deleted of them; return whether there is more to merge."""
    count = "SELECT total_changes()"
    before = connection.exec_driver_sql(count).scalar_one()
    connection.exec_driver_sql(f"INSERT INTO {index.name} ({index.name}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608 - our own names
    # By FTS5's own words: where nothing was merged, only the statement itself is counted.
    return bool(connection.exec_driver_sql(count).scalar_one() - before >= 2)


def _find_file(url: URL) -> Path | None:
    """Return the file of a SQLite database; None for one in memory."""
    name = url.database or ""
    if name.startswith("file:") and "uri" in url.query:
        name = "" if url.query.get("mode") == "memory" else unquote(urlsplit(name).path)
    # Where it is a link, SQLite puts its other files beside what the link names.
    return Path(name).resolve() if name not in ("", ":memory:") else None


def _make_private(file: Path) -> None:
    """Make the file where there is none, and keep everybody else from reading it.

    SQLite would ask the umask, and gives the mode of the database to the files that it puts beside it.
    """
    make_private_folder(file.parent)
    try:
        os.close(create_private_file(file))
    except FileExistsError:
        # Not opened: to close it would end the locks that other connections of this process hold.
        for suffix in sqlite_backup.SUFFIXES:
            make_private(add_suffix(file, suffix))
