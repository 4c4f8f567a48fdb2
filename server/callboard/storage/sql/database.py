"""Opens, migrates and checks a SQL database, and runs reads and write transactions.

Every failure becomes a `StorageError`. During `start` its message is for the operator: it names the database and says
what to do. Later its message is for users and names no file or host; the log has the details.

A read or write is a function of a connection. Writes that wait at the same time share one transaction, because a commit
costs more than a statement. Only this module waits for temporary failures, such as a lock of another program or a
restarting database server. The subclasses are in `sqlite.py` and `postgresql.py`, the differences in SQL in `Dialect`.
"""

import asyncio
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import structlog
from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Row,
    Select,
    Table,
    delete,
    event,
    select,
    tuple_,
)
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from callboard.errors import StorageError
from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.failures import describe_failure, is_connection_lost, is_database_failure, is_temporary
from callboard.storage.sql.late_records import LateRecords
from callboard.storage.sql.versions import UnknownVersion, count_missing, migrate
from callboard.storage.values import StoreAccess

PATIENCE_SECONDS = 20
"""The longest time that a write waits for a temporary failure to end."""
PATIENCE_IN_TROUBLE_SECONDS = 1
"""The same after a failed write: requests should not wait for a database that is known to fail."""
HEALTH_PATIENCE_SECONDS = 3
ATTEMPT_SECONDS = 1
"""The time that SQLite itself waits for a lock; short, so that a cancelled write ends soon."""
CONNECT_SECONDS = 5
STATEMENT_SECONDS = PATIENCE_SECONDS + 5
"""The longest time of a statement on PostgreSQL, including waiting for locks and for a server that does not answer."""
RECONNECT_SECONDS = 0.25

MAX_TOGETHER = 100
"""The most writes in one transaction."""
ROWS_AT_ONCE = 100
"""The rows that a bulk change writes or deletes in one transaction; small, because other writes wait for it."""

T = TypeVar("T")
Work = Callable[[Connection], T]
"""A read or write; it may run in a thread, and runs again if its transaction was rolled back."""

_ALEMBIC = threading.Lock()
"""Alembic keeps its context in module globals, shared by all databases and event loops of the process."""
ALEMBIC_PAUSE_SECONDS = 0.01

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A queued write, and the future for its result."""

    work: Work[Any]
    done: "asyncio.Future[Any]"


class Transaction:
    """Runs several works in one transaction; `begin` begins it and takes its locks."""

    def __init__(self, begin: Work[object], works: Sequence[Work[Any]]) -> None:
        self._begin = begin
        self._works = works
        self.has_begun = False
        """True after `begin` has returned."""

    def run(self, connection: Connection) -> list[Any]:
        """Run the works and commit; return their results."""
        self.has_begun = False
        self._begin(connection)
        self.has_begun = True
        results = [work(connection) for work in self._works]
        connection.commit()
        return results


class Database(ABC):
    """A database; see the module."""

    dialect: ClassVar[Dialect]
    exclusive_lock: ClassVar[str]
    """The statement that takes the lock for migrations; on SQLite it begins every write transaction."""
    sweep_seconds: ClassVar[float]
    """The interval in which servers look for changes whose notifications may have been lost."""

    def __init__(self, url: URL) -> None:
        self.on_access: Callable[[StoreAccess], None] = lambda _: None
        """Called after every read and write."""
        self.late = LateRecords()
        self.where = url.render_as_string(hide_password=True)
        try:
            engine = self._create_engine(url)
        except ImportError as error:
            raise StorageError(
                f"CALLBOARD_DATABASE_URL cannot be used: {error}. PostgreSQL needs pip install 'callboard[postgresql]'"
            ) from error
        except ArgumentError as error:
            raise StorageError(f"CALLBOARD_DATABASE_URL cannot be used: {error}") from error
        event.listen(engine, "connect", self._set_up)
        event.listen(engine, "handle_error", _disconnect_after_timeout)
        self._is_starting = True
        self._last_write_failed = False
        self._health: asyncio.Task[StorageError | None] | None = None
        self._written_at = 0.0
        self._queue: list[_Write] = []
        self._queue_writer: asyncio.Task[None] | None = None
        self._single_writes: set[asyncio.Task[bool]] = set()

    @abstractmethod
    def _create_engine(self, url: URL) -> Engine:
        """Create the engine without connecting, and return it, or the synchronous engine inside an asynchronous one."""

    @abstractmethod
    async def _run(self, work: Work[T]) -> T:
        """Run `work` on a connection of its own and return its result; roll back everything that it did not commit."""

    @abstractmethod
    async def _dispose(self) -> None:
        """Close every connection."""

    @abstractmethod
    def _set_up(self, connection: Any, record: object) -> None:
        """Prepare a new connection of the driver."""

    @property
    def file(self) -> Path | None:
        """The path of the database file; None for a database server and for a database in memory."""
        return None

    @property
    def is_of_one_process(self) -> bool:
        """True if only one server process may use the database."""
        return False

    async def start(self) -> None:
        """Connect, and create or migrate the tables.

        Raises `StorageError` if the database cannot be reached, or was made by a newer version.
        """
        # The database may have been used and closed before in another event loop.
        self.late = LateRecords()
        self._health = None
        self._queue = []
        self._queue_writer = None
        self._is_starting = True
        async with AsyncExitStack() as unless_started:
            unless_started.push_async_callback(self.close)
            with self._translate_failures():
                await self._open_file()
                async with _alembic_lock():
                    transaction = Transaction(self._begin_exclusive, [migrate])
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    await self._run_when_free(transaction, deadline, self._run_migration)
            unless_started.pop_all()
        self._is_starting = False

    async def _open_file(self) -> None:  # noqa: B027 - only SQLite has a file
        """Open the database file before the first read."""

    def _check_file(self) -> None:  # noqa: B027 - only SQLite has a file
        """Raise `StorageError` if the database file is not the one that was opened."""

    async def close(self) -> None:
        """Try to write everything that waits, and close all connections."""
        await self.late.close()
        if writers := {task for task in (self._queue_writer, *self._single_writes) if task}:
            await asyncio.wait(writers)
        # A server that no longer answers would block the close.
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._dispose()

    async def missing_migrations(self) -> int:
        """Return the number of migrations that the database lacks.

        Raises `StorageError` if the database cannot be read, or was made by a newer version.
        """
        return await self.read(count_missing)

    @abstractmethod
    async def check_integrity(self) -> None:
        """Raise `StorageError` if the database is damaged or cannot be written, as far as a quick check can tell."""

    @abstractmethod
    def back_up(self, copy: Path) -> None:
        """Write a consistent copy of the database into a new file; the database need not be started.

        Raises `StorageError`; for a database server its message has the command that makes a copy.
        """

    @abstractmethod
    def restore(self, copy: Path) -> None:
        """Replace the database, which no server may have open, by a copy.

        Raises `StorageError`; for a database server its message has the command that restores a copy.
        """

    async def drop_deleted_words(self) -> None:  # noqa: B027 - PostgreSQL does it itself
        """Remove deleted texts from the full-text indexes, if the database only marks them as deleted."""

    async def truncate_log(self) -> None:  # noqa: B027 - PostgreSQL does it itself
        """Empty the database's log, which may contain deleted rows."""

    async def check(self) -> None:
        """Raise `StorageError` if the database cannot be written; concurrent calls share one test write."""
        if self._health is None or self._health.done():
            self._health = asyncio.create_task(self._write_something())
        if failure := await asyncio.shield(self._health):
            raise StorageError(str(failure))

    async def _write_something(self) -> StorageError | None:
        began = time.monotonic()
        try:
            self._check_free_space()
            await self._transact(self._transaction([self._touch]), HEALTH_PATIENCE_SECONDS)
        except StorageError as error:
            # Another write succeeded meanwhile: the database is busy, not broken.
            return None if self._written_at > began else error
        return None

    def _check_free_space(self) -> None:  # noqa: B027 - the disk of a database server is not visible here
        """Raise `StorageError` if the disk is full."""

    @abstractmethod
    def _touch(self, connection: Connection) -> None:
        """Write without changing anything."""

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which must only read, and return its result."""
        with self._measuring("read"), self._translate_failures():
            self._check_file()
            return await self._run(work)

    async def fetch(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return the rows of a query."""
        return await self.read(lambda connection: connection.execute(query).all())

    async def scalar(self, query: Select[*tuple[Any, ...]]) -> Any:
        """Return the first value of a query's first row, None if there is no row."""
        return await self.read(lambda connection: connection.scalar(query))

    async def execute(self, statement: Executable) -> int:
        """Run one writing statement; return the number of affected rows."""
        return await self.write(lambda connection: connection.execute(statement).rowcount)

    async def put(self, into: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Insert a row, or update the row with the same key."""
        row = self.dialect.insert(into).values(**key, **values)
        await self.execute(row.on_conflict_do_update(index_elements=list(key), set_=values))

    async def write_in_batches(self, write_some: Work[int]) -> int:
        """Run `write_some`, each time in a new transaction, until it returns 0; return the sum of its results."""
        count = 0
        while written := await self.write(write_some):
            count += written
        return count

    async def delete_in_batches(
        self, rows: Table, condition: ColumnElement[bool], rows_at_once: int = ROWS_AT_ONCE
    ) -> int:
        """Delete the rows that meet a condition, `rows_at_once` in each transaction; return their number."""
        key = rows.primary_key.columns
        some = select(*key).where(condition).limit(rows_at_once)
        delete_some = delete(rows).where(tuple_(*key).in_(some))
        return await self.write_in_batches(lambda connection: connection.execute(delete_some).rowcount)

    async def fetch_patiently(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return the rows of a query, retrying after temporary failures for as long as a write does."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await self.fetch(query)
            except StorageError as error:
                can_retry = error.__cause__ is not None and is_temporary(error.__cause__)
                if self._last_write_failed or not can_retry or time.monotonic() >= deadline:
                    # Now that the wait was in vain, the next write need not wait as long for the same failure.
                    self._last_write_failed = self._last_write_failed or can_retry
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result after the commit.

        `work` must be short, because other writes wait for it. It runs again if the connection was lost, or if another
        write in the same transaction failed. Locks are waited for before its first statement.
        """
        writing = _Write(work, asyncio.get_running_loop().create_future())
        self._queue.append(writing)
        if self._queue_writer is None:
            # An empty context, so that its log lines are not attributed to the request that happened to start it.
            self._queue_writer = asyncio.create_task(self._write_queued(), name="write", context=Context())
        with self._measuring("write"):
            result: T = await writing.done
        return result

    @property
    def waiting_writes(self) -> int:
        """The number of writes that wait for the current transaction to end."""
        return len(self._queue)

    async def _write_queued(self) -> None:
        # Let the tasks that are ready add their writes to the same transaction.
        await asyncio.sleep(0)
        try:
            while self._queue:
                # Skip writes that were cancelled while they waited.
                waiting = [writing for writing in self._queue if not writing.done.done()]
                group = waiting[:MAX_TOGETHER]
                self._queue = waiting[MAX_TOGETHER:]
                if group and not await self._write_group(group):
                    # Concurrently, so that a write that waits for a lock does not delay the others.
                    for writing in group:
                        task = asyncio.create_task(self._write_group([writing]), name="single write")
                        self._single_writes.add(task)
                        task.add_done_callback(self._single_writes.discard)
        finally:
            self._queue_writer = None

    async def _write_group(self, group: Sequence[_Write]) -> bool:
        """Run a group of writes in one transaction and set their results.

        Returns False, without setting results, if one write of several failed: the caller runs each of them alone.
        """
        transaction = self._transaction([writing.work for writing in group])
        written = asyncio.create_task(self._transact_with_reconnect(transaction))
        await asyncio.wait({written})
        error = written.exception()
        if error and transaction.has_begun and len(group) > 1:
            return False
        for place, writing in enumerate(group):
            if writing.done.done():
                continue
            if error:
                writing.done.set_exception(error)
            else:
                writing.done.set_result(written.result()[place])
        return True

    async def _transact_with_reconnect(self, transaction: Transaction) -> list[Any]:
        try:
            return await self._transact(transaction)
        except StorageError as error:
            if error.__cause__ is None or not is_connection_lost(error.__cause__):
                raise
        return await self._transact(transaction)

    async def _transact(self, transaction: Transaction, patience_seconds: float | None = None) -> list[Any]:
        if patience_seconds is None:
            patience_seconds = PATIENCE_IN_TROUBLE_SECONDS if self._last_write_failed else PATIENCE_SECONDS
        deadline = time.monotonic() + patience_seconds
        with self._translate_failures(is_writing=True, is_patient=patience_seconds >= PATIENCE_SECONDS):
            async with self._write_lock(deadline):
                self._check_file()
                results = await self._run_when_free(transaction, deadline)
                self._last_write_failed = False
                self._written_at = time.monotonic()
        self.late.retry()
        return results

    def _transaction(self, works: Sequence[Work[Any]]) -> Transaction:
        begin = self._begin_write if len(works) == 1 else self._begin_group_write
        return Transaction(begin, works)

    async def _run_when_free(
        self, transaction: Transaction, deadline: float, run: Callable[[Work[Any]], Awaitable[Any]] | None = None
    ) -> list[Any]:
        """Run a transaction; retry until `deadline` if a temporary failure keeps it from beginning."""
        while True:
            try:
                results: list[Any] = await (run or self._run)(transaction.run)
            except (SQLAlchemyError, OSError) as error:
                if transaction.has_begun or not is_temporary(error) or time.monotonic() >= deadline:
                    raise
            else:
                return results
            await asyncio.sleep(RECONNECT_SECONDS)

    async def catch_up(self, chat_id: str | None = None) -> None:
        """Try to store the late runs of a chat, or of all chats."""
        with suppress(StorageError):
            await self.late.store(chat_id)

    @abstractmethod
    def hold_lease(self, server_id: str, lease_seconds: float) -> AbstractAsyncContextManager[None]:
        """Show other servers, until the block ends, that this server is running; see `RunLog.open`."""

    @abstractmethod
    def was_alone(self) -> bool:
        """Return whether the last check found no other server that could take over the runs of this one."""

    @abstractmethod
    async def is_alone(self) -> bool:
        """Return whether no other server uses the database; False if that is unknown."""

    @abstractmethod
    async def find_dead_servers(self, server_ids: Collection[str]) -> set[str]:
        """Return those of the servers that are no longer running."""

    @asynccontextmanager
    async def _write_lock(self, _deadline: float) -> AsyncIterator[None]:
        """Hold the lock of this process for one writer at a time, if the database needs one."""
        yield

    def _begin_write(self, connection: Connection) -> None:  # noqa: B027 - PostgreSQL needs nothing
        """Begin the transaction of one write, if its first statement would not do it."""

    def _begin_group_write(self, connection: Connection) -> None:
        """Begin the transaction of several writes."""
        self._begin_write(connection)

    def _begin_exclusive(self, connection: Connection) -> None:
        connection.exec_driver_sql(self.exclusive_lock)

    async def _run_migration(self, work: Work[T]) -> T:
        """Run a migration, which may take longer than other statements."""
        return await self._run(work)

    @contextmanager
    def _measuring(self, operation: Literal["read", "write"]) -> Iterator[None]:
        """Report the duration of the block to `on_access`, also if it is cancelled."""
        began = time.monotonic()
        is_failed = False
        try:
            yield
        except StorageError:
            is_failed = True
            raise
        finally:
            self.on_access(StoreAccess(operation, time.monotonic() - began, is_failed))

    @contextmanager
    def _translate_failures(self, *, is_writing: bool = False, is_patient: bool = False) -> Iterator[None]:
        try:
            yield
        except UnknownVersion as error:
            raise self._make_failure(
                "it was made by another version of Callboard", error, "install that version"
            ) from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            if is_writing and is_database_failure(error) and (is_patient or not is_temporary(error)):
                self._last_write_failed = True
            raise self._make_failure(
                describe_failure(error), error, "check free disk space, permissions and other programs that use it"
            ) from error

    def _make_failure(self, why: str, error: Exception | None = None, advice: str = "") -> StorageError:
        if self._is_starting:
            detail = getattr(error, "orig", None) or error
            return StorageError(
                f"the database {self.where} cannot be used: {why} ({detail}); {advice}, or set CALLBOARD_DATABASE_URL"
            )
        _log.error("database_failed", database=self.where, reason=why, error=str(error or ""))
        return StorageError(f"the server's database cannot be used just now: {why}. The server's log says more.")


def _disconnect_after_timeout(context: ExceptionContext) -> None:
    """Discard a connection whose server did not answer in time, because a rollback would wait for the server again."""
    if isinstance(context.original_exception, TimeoutError):
        context.is_disconnect = True


@asynccontextmanager
async def _alembic_lock() -> AsyncIterator[None]:
    # Polled, because a thread that waits for the lock would still take it after its task was cancelled.
    while not _ALEMBIC.acquire(blocking=False):  # noqa: ASYNC110 - the holder may be in another event loop
        await asyncio.sleep(ALEMBIC_PAUSE_SECONDS)
    try:
        yield
    finally:
        _ALEMBIC.release()
