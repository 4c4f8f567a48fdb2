"""A SQL database: opened, migrated, checked; connections to read from and transactions to write in.

Knows tables and nothing of what is kept in them. Every failure becomes a `StorageError`: while
the database is opened one for the admin, which names it and says what to do; later one for
users, which names no file and no host, and the log has the rest.

What reads or writes is a function of a connection. Writes that are ready at one time are made in one transaction: a
commit costs more than a statement does. What passes is waited for here, and nowhere else: a lock of another program, a
server that starts. What differs between databases is in `sqlite.py` and `postgresql.py`, what
differs in their SQL in the `Dialect`s.
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
from callboard.storage.sql.failures import is_lost, is_passing, is_trouble, reason
from callboard.storage.sql.late_records import LateRecords
from callboard.storage.sql.versions import UnknownVersion, is_newest
from callboard.storage.values import StoreAccess

PATIENCE_SECONDS = 20
"""The seconds that a write waits for what passes."""
PATIENCE_IN_TROUBLE_SECONDS = 1
"""The same, where the last write failed: whoever asks should not wait for what is known to be broken."""
HEALTH_PATIENCE_SECONDS = 3
ATTEMPT_SECONDS = 1
"""The seconds that SQLite itself waits for a lock; then it is asked again, so that a cancelled write ends soon."""
CONNECT_SECONDS = 5
STATEMENT_SECONDS = PATIENCE_SECONDS + 5
"""The seconds that a statement may take on PostgreSQL, waiting for locks included; also where the server is silent."""
RECONNECT_SECONDS = 0.25

MAX_TOGETHER = 100
"""The most writes that are made in one transaction."""
ROWS_AT_ONCE = 100
"""The rows of many that are written, or deleted, in one transaction: others wait to write."""

T = TypeVar("T")
Work = Callable[[Connection], T]
"""Reads or writes by a connection: it may run in a thread, and is run again where its transaction was taken back."""

_ALEMBIC = threading.Lock()
ALEMBIC_PAUSE_SECONDS = 0.01

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A write that waits for its turn, and who waits for what it returns."""

    work: Work[Any]
    done: "asyncio.Future[Any]"


class Transaction:
    """Works in one transaction: `begin` takes the locks that others may have."""

    def __init__(self, begin: Work[object], works: Sequence[Work[Any]]) -> None:
        self._begin = begin
        self._works = works
        self.has_begun = False
        """True once the first work may run."""

    def run(self, connection: Connection) -> list[Any]:
        """Return what the works return, once all is committed."""
        self.has_begun = False
        self._begin(connection)
        self.has_begun = True
        results = [work(connection) for work in self._works]
        connection.commit()
        return results


class Database(ABC):
    """A database."""

    dialect: ClassVar[Dialect]
    """The database's own SQL."""
    exclusive_lock: ClassVar[str]
    """The statement that lets one server migrate at a time, and one connection write where that is all there can be."""
    sweep_seconds: ClassVar[float]
    """The seconds after which a server looks for news that it was not told of."""

    def __init__(self, url: URL) -> None:
        self.on_access: Callable[[StoreAccess], None] = lambda _: None
        """Is told of every read and write."""
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
        event.listen(engine, "handle_error", _give_up_silent_connections)
        self._speaks_to_admin = True
        self._is_in_trouble = False
        self._health: asyncio.Task[StorageError | None] | None = None
        self._written_at = 0.0
        self._queue: list[_Write] = []
        self._grouping: asyncio.Task[None] | None = None
        self._single_writes: set[asyncio.Task[None]] = set()

    @abstractmethod
    def _create_engine(self, url: URL) -> Engine:
        """Make an engine that has connected to nothing yet, and return it without an asynchronous face."""

    @abstractmethod
    async def _run(self, work: Work[T]) -> T:
        """Return what `work` returns, on a connection of its own; what it did not commit is taken back."""

    @abstractmethod
    async def _dispose(self) -> None:
        """Close every connection."""

    @abstractmethod
    def _set_up(self, connection: Any, record: object) -> None:
        """Prepare a new connection of the driver."""

    @property
    def file(self) -> Path | None:
        """The file that the database is in; None for a server's."""
        return None

    @property
    def is_of_one_process(self) -> bool:
        """True if only one server process may use it."""
        return False

    async def start(self) -> None:
        """Connect, create what is missing, migrate to the newest tables.

        Raises `StorageError` where the database cannot be reached, or was made by a newer version.
        """
        # It may have been closed before, in another event loop.
        self.late = LateRecords()
        self._health = None
        self._queue = []
        self._grouping = None
        self._speaks_to_admin = True
        async with AsyncExitStack() as unless_started:
            unless_started.push_async_callback(self.close)
            with self._translate_failures():
                await self._open_file()
                async with _holding_alembic():
                    transaction = Transaction(self._begin_exclusive, [_migrate])
                    deadline = time.monotonic() + PATIENCE_SECONDS
                    await self._run_when_free(transaction, deadline, self._run_migration)
            unless_started.pop_all()
        self._speaks_to_admin = False

    async def _open_file(self) -> None:  # noqa: B027 - a server opens its own files
        """Open the file of the database, before anything reads it."""

    def _check_file(self) -> None:  # noqa: B027 - a server looks after its own files
        """Raise `StorageError` if the file of the database is not the one that was opened."""

    async def close(self) -> None:
        """Write what waits to be written, if it can be, and let go of every connection."""
        await self.late.close()
        if at_work := {task for task in (self._grouping, *self._single_writes) if task}:
            await asyncio.wait(at_work)
        # A server that says nothing any more is not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._dispose()

    async def missing_migrations(self) -> int:
        """Return how many migrations there are that the database has not seen.

        Raises `StorageError` where it cannot be read, or was made by a newer version.
        """
        return await self.read(_count_missing)

    @abstractmethod
    async def check_integrity(self) -> None:
        """Raise `StorageError` where the database is known to be damaged, or cannot be written."""

    @abstractmethod
    def back_up(self, copy: Path) -> None:
        """Write a copy, as the database is at one moment, into a new file; it need not be started.

        Raises `StorageError`, for one that is on a server with the command that does it.
        """

    @abstractmethod
    def restore(self, copy: Path) -> None:
        """Put a copy in the place of the database, which no server may have open.

        Raises `StorageError`, for one that is on a server with the command that does it.
        """

    async def drop_deleted_words(self) -> None:  # noqa: B027 - PostgreSQL tidies up itself
        """Write the indexes of words anew where they only mark what is deleted."""

    async def truncate_log(self) -> None:  # noqa: B027 - PostgreSQL tidies up itself
        """Empty what the database keeps for itself of deleted rows."""

    async def check(self) -> None:
        """Raise `StorageError` where nothing can be written; those who ask at one time share one answer."""
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
            # Behind many of our own, it is crowded and not broken.
            return None if self._written_at > began else error
        return None

    def _check_free_space(self) -> None:  # noqa: B027 - a server's disk is its own affair
        """Raise `StorageError` where the disk is known to be full."""

    @abstractmethod
    def _touch(self, connection: Connection) -> None:
        """Write a page, and change nothing."""

    async def read(self, work: Work[T]) -> T:
        """Return what `work` reads."""
        with self._measuring("read"), self._translate_failures():
            self._check_file()
            return await self._run(work)

    async def fetch(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return the rows of a query."""
        return await self.read(lambda connection: connection.execute(query).all())

    async def scalar(self, query: Select[*tuple[Any, ...]]) -> Any:
        """Return the first value of a query's first row, None where there is none."""
        return await self.read(lambda connection: connection.scalar(query))

    async def execute(self, statement: Executable) -> int:
        """Run one statement that writes; return how many rows it wrote."""
        return await self.write(lambda connection: connection.execute(statement).rowcount)

    async def put(self, into: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Write a row under its key, whatever was there."""
        row = self.dialect.insert(into).values(**key, **values)
        await self.execute(row.on_conflict_do_update(index_elements=list(key), set_=values))

    async def write_in_batches(self, write_some: Work[int]) -> int:
        """Run what writes some of many rows until it finds none; return how many there were."""
        count = 0
        while written := await self.write(write_some):
            count += written
        return count

    async def delete_in_batches(
        self, rows: Table, is_meant: ColumnElement[bool], rows_at_once: int = ROWS_AT_ONCE
    ) -> int:
        """Delete the rows of a table that are meant; return how many there were."""
        key = rows.primary_key.columns
        some = select(*key).where(is_meant).limit(rows_at_once)
        delete_some = delete(rows).where(tuple_(*key).in_(some))
        return await self.write_in_batches(lambda connection: connection.execute(delete_some).rowcount)

    async def fetch_patiently(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return the rows of a query; what passes is waited for as long as for a write."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await self.fetch(query)
            except StorageError as error:
                passes = error.__cause__ is not None and is_passing(error.__cause__)
                if self._is_in_trouble or not passes or time.monotonic() >= deadline:
                    # A write would wait for the same once more.
                    self._is_in_trouble = self._is_in_trouble or passes
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)

    async def write(self, work: Work[T]) -> T:
        """Return what `work` returns, once what it wrote is committed; keep it short, others wait.

        It is run once more where the connection turned out to be gone, or what was to be written together with it
        failed. Locks of others are waited for before its first statement.
        """
        writing = _Write(work, asyncio.get_running_loop().create_future())
        self._queue.append(writing)
        if self._grouping is None:
            # What it logs is of none of those who wait.
            self._grouping = asyncio.create_task(self._write_queued(), name="write", context=Context())
        with self._measuring("write"):
            result: T = await writing.done
        return result

    @property
    def waiting_writes(self) -> int:
        """How many writes wait for the transaction that is under way."""
        return len(self._queue)

    async def _write_queued(self) -> None:
        # What is about to be written comes along: a run's row and its frame are.
        await asyncio.sleep(0)
        try:
            while self._queue:
                # Not those that nobody waits for any more.
                waiting = [writing for writing in self._queue if not writing.done.done()]
                group = waiting[:MAX_TOGETHER]
                self._queue = waiting[MAX_TOGETHER:]
                if group and not await self._settle(group):
                    # Each by itself, and none waits for what holds up another.
                    for writing in group:
                        task = asyncio.create_task(self._settle_single(writing), name="single write")
                        self._single_writes.add(task)
                        task.add_done_callback(self._single_writes.discard)
        finally:
            self._grouping = None

    async def _settle_single(self, writing: _Write) -> None:
        await self._settle([writing])

    async def _settle(self, group: Sequence[_Write]) -> bool:
        """Write a group, and tell those who wait; False where one of them is at fault, who is not known."""
        transaction = self._transaction([writing.work for writing in group])
        written = asyncio.create_task(self._transact_surely(transaction))
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

    async def _transact_surely(self, transaction: Transaction) -> list[Any]:
        try:
            return await self._transact(transaction)
        except StorageError as error:
            if error.__cause__ is None or not is_lost(error.__cause__):
                raise
        return await self._transact(transaction)

    async def _transact(self, transaction: Transaction, patience_seconds: float | None = None) -> list[Any]:
        if patience_seconds is None:
            patience_seconds = PATIENCE_IN_TROUBLE_SECONDS if self._is_in_trouble else PATIENCE_SECONDS
        deadline = time.monotonic() + patience_seconds
        with self._translate_failures(is_writing=True, is_patient=patience_seconds >= PATIENCE_SECONDS):
            async with self._turn_to_write(deadline):
                self._check_file()
                results = await self._run_when_free(transaction, deadline)
                self._is_in_trouble = False
                self._written_at = time.monotonic()
        self.late.retry()
        return results

    def _transaction(self, works: Sequence[Work[Any]]) -> Transaction:
        begin = self._begin_to_write if len(works) == 1 else self._begin_to_write_together
        return Transaction(begin, works)

    async def _run_when_free(
        self, transaction: Transaction, deadline: float, run: Callable[[Work[Any]], Awaitable[Any]] | None = None
    ) -> list[Any]:
        """Run a transaction, waiting until `deadline` for what keeps it from beginning."""
        while True:
            try:
                results: list[Any] = await (run or self._run)(transaction.run)
            except (SQLAlchemyError, OSError) as error:
                if transaction.has_begun or not is_passing(error) or time.monotonic() >= deadline:
                    raise
            else:
                return results
            await asyncio.sleep(RECONNECT_SECONDS)

    async def catch_up(self, chat_id: str | None = None) -> None:
        """Write what waits to be written of a chat, or of all, if it can be."""
        with suppress(StorageError):
            await self.late.store(chat_id)

    @abstractmethod
    def hold_lease(self, server_id: str, lease_seconds: float) -> AbstractAsyncContextManager[None]:
        """Let other servers know, until the block ends, that this one is there; see `RunLog.open`."""

    @abstractmethod
    def was_alone(self) -> bool:
        """Return whether there was no other server, when this one last looked, that could take it for gone."""

    @abstractmethod
    async def is_alone(self) -> bool:
        """Return whether no other server is there; False where that is not known."""

    @abstractmethod
    async def find_dead_servers(self, server_ids: Collection[str]) -> set[str]:
        """Return those of some servers that are there no longer."""

    @asynccontextmanager
    async def _turn_to_write(self, _deadline: float) -> AsyncIterator[None]:
        yield

    def _begin_to_write(self, connection: Connection) -> None:  # noqa: B027 - PostgreSQL needs nothing
        """Begin the transaction of one write, where the first statement does not."""

    def _begin_to_write_together(self, connection: Connection) -> None:
        """Begin the transaction of several."""
        self._begin_to_write(connection)

    def _begin_exclusive(self, connection: Connection) -> None:
        """Take the lock that one has at a time."""
        connection.exec_driver_sql(self.exclusive_lock)

    async def _run_migration(self, work: Work[T]) -> T:
        """Run a work that may take its time."""
        return await self._run(work)

    @contextmanager
    def _measuring(self, operation: Literal["read", "write"]) -> Iterator[None]:
        """Tell how long the block takes; one that is cancelled is told of as well."""
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
            if is_writing and is_trouble(error) and (is_patient or not is_passing(error)):
                self._is_in_trouble = True
            raise self._make_failure(reason(error), error, "check free space, rights and other users of it") from error

    def _make_failure(self, why: str, error: Exception | None = None, advice: str = "") -> StorageError:
        if self._speaks_to_admin:
            detail = getattr(error, "orig", None) or error
            return StorageError(
                f"the database {self.where} cannot be used: {why} ({detail}); {advice}, or set CALLBOARD_DATABASE_URL"
            )
        _log.error("database_failed", database=self.where, reason=why, error=str(error or ""))
        return StorageError(f"the server's database cannot be used just now: {why}. The server's log says more.")


def _give_up_silent_connections(context: ExceptionContext) -> None:
    """Take a connection whose server did not answer in time for lost: even to roll back it would be waited for."""
    if isinstance(context.original_exception, TimeoutError):
        context.is_disconnect = True


@asynccontextmanager
async def _holding_alembic() -> AsyncIterator[None]:
    """Hold Alembic for one migration: what it works with is the process's, whatever the database and the event loop."""
    # Not waited for in a thread: one that is given up would take it all the same, and never let go.
    while not _ALEMBIC.acquire(blocking=False):  # noqa: ASYNC110 - who has it may be in another loop
        await asyncio.sleep(ALEMBIC_PAUSE_SECONDS)
    try:
        yield
    finally:
        _ALEMBIC.release()


def _migrate(connection: Connection) -> None:
    if not is_newest(connection):
        from callboard.storage.sql import migrating

        migrating.upgrade(connection)


def _count_missing(connection: Connection) -> int:
    from callboard.storage.sql import migrating

    return migrating.count_missing(connection)
