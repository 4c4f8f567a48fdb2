"""SQLite's own: one writer, a write-ahead log, a file that others may write over."""

import asyncio
import os
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from callboard._private_files import create_private_file, make_private, make_private_folder
from callboard.errors import StorageError
from callboard.storage.sql import database, sqlite_backup
from callboard.storage.sql.database import Database, T, Transaction, Work
from callboard.storage.sql.failures import reason
from callboard.storage.sql.server_file import ServerFile
from callboard.storage.sql.sqlite_dialect import SqliteDialect
from callboard.storage.sql.sqlite_file import DatabaseFile, Found
from callboard.storage.sql.tables import MEMORY_WORDS, MESSAGE_WORDS, WordIndex

REOPEN_SECONDS = 5
"""The seconds between two looks at a database that is only suspected, and the longest wait for those who use it."""
CHECKPOINT_BYTES = 4 * 1024 * 1024
LEAST_FREE_BYTES = 1024 * 1024
MOST_EXAMINED_BYTES = 512 * 1024 * 1024
MERGED_PAGES = 200
"""The pages of an index that are merged in one transaction, for which others wait."""
THREADS = 15
"""The most connections at one time."""
WRITTEN_OVER = (
    "another program has written over it while several servers use it: stop them, put the copy back again, start them"
)
SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")

_log = structlog.get_logger(__name__)


class _CrowdedOut(sqlite3.OperationalError):
    """A failure, of those before us in the queue, to get SQLite's lock in time: what SQLite itself would say."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


class SqliteDatabase(Database):
    """A database in a file, or in memory. A file that was deleted, replaced or written over is opened anew."""

    dialect = SqliteDialect()
    # It also makes one transaction of a migration: the driver begins none by itself before a change of the
    # tables, and a server that was stopped in between would leave half of them.
    exclusive_lock = "BEGIN IMMEDIATE"
    sweep_seconds = 0.2

    def __init__(self, url: URL, repair: Work[object]) -> None:
        super().__init__(url, repair)
        self._watched: DatabaseFile | None = None
        self._is_another = False
        self._is_reopening = False
        self._is_log_stuck = False
        self._reopened_at = 0.0
        self._server_file: ServerFile | None = None
        self._users = 0
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
        """Make the file where there is none, migrate, and watch it from here on."""
        file = DatabaseFile(self.file) if self.file else None
        try:
            if file:
                file.put_back()
                _make_private(file.path)
                file.hold()
        except OSError as error:
            raise StorageError(f"CALLBOARD_DATA_DIR cannot be written: {error}") from error
        self._make_locks()
        with ExitStack() as unless_started:
            if file:
                unless_started.callback(file.let_go)
            await super().start()
            unless_started.pop_all()
        if file:
            await asyncio.to_thread(file.remember)
            self._watched = file
            await self._settle_checkpoint(file)

    def _make_locks(self) -> None:
        """Make what belongs to one event loop."""
        # A connection at a time each: threads wait for statements, and the loop for none of them.
        self._threads = ThreadPoolExecutor(THREADS if self.file else 1, thread_name_prefix="sqlite")
        # SQLite lets one connection write at a time and its waiters poll; a queue of our own is
        # fair and wakes at once.
        self._writer = asyncio.Lock()
        self._reopening = asyncio.Lock()
        self._unused = asyncio.Event()
        self._unused.set()

    async def close(self) -> None:
        """Write what waits to be written, if it can be, and let go of the file."""
        await super().close()
        if self._watched:
            self._watched.let_go()

    async def check_integrity(self) -> None:
        """Raise `StorageError` where the file cannot be written or is damaged; a large one is not read."""

        def touch(connection: Connection) -> None:
            self._touch(connection)
            connection.rollback()

        with self._translate_failures():
            await self._run_when_free(Transaction(self._begin_exclusive, [touch]), time.monotonic() + REOPEN_SECONDS)

        # Not in the same transaction: a server may be at work, and wants to write.
        def check(connection: Connection) -> str:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            page_bytes = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
            if pages * page_bytes > MOST_EXAMINED_BYTES:
                return "ok"
            return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())

        found = await self.read(check)
        if found != "ok":
            raise StorageError(f"the database {self.where} is damaged ({found}): put back a copy of it")

    def back_up(self, copy: Path) -> None:
        """Copy the file while servers write to it."""
        if self.file is None:
            raise StorageError("the database is in the memory of one process: there is no file to copy")
        sqlite_backup.back_up(self.file, copy, database.PATIENCE_SECONDS)

    async def drop_deleted_words(self) -> None:
        """Write the indexes of words anew, which only mark what is deleted; empty the log where nobody else has it.

        Else a program that is gone at once would have changed the file, and that of a server is opened anew for that:
        its next round empties the log.
        """
        for index in (MEMORY_WORDS, MESSAGE_WORDS):
            # A negative number begins to merge all that there is, positive ones go on with it.
            pages = -MERGED_PAGES
            while await self.write(partial(_merge, index, pages)):
                pages = MERGED_PAGES
        if await self.is_alone():
            await self.truncate_log()

    async def truncate_log(self) -> None:
        """Empty SQLite's log; other servers see who has done it."""
        if self._watched:
            await self._transact(Transaction(self._begin_exclusive, [self._touch], self._empty_log))

    def _empty_log(self, connection: Connection) -> None:
        assert self._watched is not None
        with self._watched.checkpointing():
            is_busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        if is_busy:
            _log.warning("log_not_emptied", database=self.where, reason="somebody reads what is in it")

    @asynccontextmanager
    async def hold_lease(
        self, server_id: str, _lease_seconds: float, _on_news: Callable[[str], None]
    ) -> AsyncIterator[None]:
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
        # Checkpoints are made here: see `callboard.storage.sql.sqlite_file`.
        cursor.execute("PRAGMA wal_autocheckpoint=0")
        # Begun anew after one, the log is cut: it is by its size that the next is due.
        cursor.execute("PRAGMA journal_size_limit=0")
        cursor.close()

    def _touch(self, connection: Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        # What it is already: even so a page is written.
        connection.exec_driver_sql(f"PRAGMA user_version = {version:d}")

    def _check_free_space(self) -> None:
        if self._watched is None:
            return
        with suppress(OSError):
            if shutil.disk_usage(self._watched.path.parent).free < LEAST_FREE_BYTES:
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

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        """Keep the database from being opened anew meanwhile; it has been, where it had to be."""
        while self._watched and self._must_be_reopened(self._watched):
            await self._reopen(self._watched)
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    def _must_be_reopened(self, file: DatabaseFile) -> bool:
        return self._is_reopening or self._is_to_be_reopened(file)

    def _is_to_be_reopened(self, file: DatabaseFile) -> bool:
        is_due = time.monotonic() >= self._reopened_at + REOPEN_SECONDS
        return file.look() is not Found.SAME or (self._is_doubtful and is_due)

    async def _is_sound(self, file: DatabaseFile) -> bool:
        """Return whether the connections can be used as they are."""
        if not self._is_to_be_reopened(file):
            return True
        return not self._is_doubtful and await asyncio.to_thread(self._is_others_checkpoint, file)

    async def _reopen(self, file: DatabaseFile) -> None:
        async with self._reopening:
            if await self._is_sound(file):
                return
            # From here on nobody begins to use it: to close a file ends the locks that others of this process have.
            self._is_reopening = True
            try:
                await self._reopen_unused(file)
            finally:
                self._is_reopening = False

    async def _reopen_unused(self, file: DatabaseFile) -> None:
        try:
            async with asyncio.timeout(REOPEN_SECONDS):
                await self._unused.wait()
        except TimeoutError:
            raise self._make_failure("it is in use, and has to be opened anew") from None
        # Who used it may have changed it.
        if await self._is_sound(file):
            return
        found = file.look()
        is_written_over = found is Found.CHANGED and await asyncio.to_thread(file.was_written_over)
        if is_written_over and await asyncio.to_thread(self._are_others_there):
            # Its log is theirs too: what one takes away the others would go on writing to.
            raise self._make_failure(WRITTEN_OVER)
        _log.warning("database_reopened", database=self.where, found=found.value)
        self._reopened_at = time.monotonic()
        self._is_doubtful = True
        self._is_another = self._is_another or found in (Found.REPLACED, Found.CHANGED)
        await self._part_from(file, found, is_written_over)
        file.let_go()
        try:
            _make_private(file.path)
            file.hold()
            await self._migrate(REOPEN_SECONDS, is_another=self._is_another)
        finally:
            await asyncio.to_thread(file.remember)
        await self._settle_checkpoint(file)
        self._is_doubtful = False
        if self._is_another:
            self._is_another = False
            self.generation += 1

    def _is_others_checkpoint(self, file: DatabaseFile) -> bool:
        """Return whether another server that uses the file has written its log into it; it is then known as it is."""
        if file.look() is not Found.CHANGED or not self._are_others_there() or file.was_written_over():
            return False
        file.remember()
        return True

    def _are_others_there(self) -> bool:
        """Return whether a server uses the file, other than this one, where this is one."""
        assert self.file is not None
        return ServerFile.are_others_there(self.file, but=self._server_file.path if self._server_file else None)

    async def _part_from(self, file: DatabaseFile, found: Found, is_written_over: bool) -> None:
        """Close every connection, so that nothing of another database gets into the one that is there now."""
        match found:
            case Found.REPLACED | Found.WITHOUT_LOG:
                if _has_pooled(self._engine):
                    # Into the file that the connections have, wherever that is now; and the log is empty.
                    with suppress(SQLAlchemyError):
                        await self._run(lambda old: old.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)"))
                if found is Found.REPLACED:
                    # Others may have it open yet, and would write the new file's log into the old file.
                    file.remove_log()
                await self._dispose()
            case Found.CHANGED if is_written_over:
                await file.part_from_log(self._dispose)
            case Found.CHANGED | Found.SAME:
                await self._dispose()

    def _begin_to_write(self, connection: Connection) -> None:
        self._begin_exclusive(connection)

    def _tidy_up(self, connection: Connection) -> None:
        """Write SQLite's log into its file where it has grown."""
        if self._watched and self._watched.log_bytes() >= CHECKPOINT_BYTES:
            self._checkpoint(self._watched, connection)

    async def _settle_checkpoint(self, file: DatabaseFile) -> None:
        """Make the checkpoint that a server which was killed did not get to, or not to the end of."""
        if not file.can_tell():
            await self._run(partial(self._checkpoint, file))

    def _checkpoint(self, file: DatabaseFile, connection: Connection) -> None:
        try:
            with file.checkpointing():
                connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")
        except SQLAlchemyError as error:
            # What was to be written is: SQLite's log holds it.
            if not self._is_log_stuck:
                _log.warning("checkpoint_failed", database=self.where, reason=reason(error), error=str(error))
            self._is_log_stuck = True
        else:
            self._is_log_stuck = False


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
        for suffix in SQLITE_SUFFIXES:
            make_private(file.with_name(file.name + suffix))


def _has_pooled(engine: Engine) -> bool:
    """Return whether there is a connection at rest that the next user would get."""
    pool = engine.pool
    return isinstance(pool, QueuePool) and pool.checkedin() > 0
