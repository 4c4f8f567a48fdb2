"""Opens, migrates and checks a SQL database, and runs reads and write transactions.

Every failure becomes a `StorageError`. During `start` its message is for the operator: it names the database and says
what to do. Later its message is for users and names no file or host; the log has the details.

A read or write is a function of a connection. Only this module waits for temporary failures, such as a lock of another
program or a restarting database server. Writes that wait at the same time share one transaction, because a commit costs
more than a statement. The subclasses in `sqlite.py` and `postgresql.py` also have the SQL that differs between
databases, except the clock `now` in `tables.py`.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext, suppress
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import structlog
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Executable,
    Row,
    Select,
    Subquery,
    Table,
    TableClause,
    Text,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from callboard.errors import StorageError
from callboard.storage.bus import Bus
from callboard.storage.sql.failures import describe_failure, is_connection_lost, is_database_failure, is_temporary
from callboard.storage.sql.tables import MEMORY_WORDS, MESSAGE_WORDS
from callboard.storage.sql.versions import UnknownVersion, alembic_lock, count_missing, migrate
from callboard.storage.values import StoreAccess
from callboard.storage.words import Term, index_text

PATIENCE_SECONDS = 20
"""The longest time that a write waits for a temporary failure to end."""
PATIENCE_IN_TROUBLE_SECONDS = 1
"""The same after a failure, until a write succeeds: requests should not wait for a database that is known to fail."""
HEALTH_PATIENCE_SECONDS = 3
ATTEMPT_SECONDS = 1
"""The time that SQLite itself waits for a lock; short, so that a cancelled write ends soon."""
CONNECT_SECONDS = 5
STATEMENT_SECONDS = PATIENCE_SECONDS + 5
"""The longest time of a statement on PostgreSQL, including waiting for locks and for a server that does not answer."""
RECONNECT_SECONDS = 0.25

ROWS_PER_PAGE = 100
"""The rows of one page of a long read."""
ROWS_AT_ONCE = 100
"""The rows that a bulk change writes or deletes in one transaction; small, because other writes wait for it."""
WRITES_AT_ONCE = 100
"""The most writes in one transaction."""

INTERRUPT_ACTIVE_RUNS = "UPDATE runs SET request = NULL, ended_at = NULL WHERE request IS NOT NULL"
"""For a restored copy: without its request no server continues a run; a server ends the run as `interrupted`.

The copy does not contain the later steps of the run, and the run may still be active on the original server.
"""

T = TypeVar("T")
Work = Callable[[Connection], T]
"""A read or write; it may run in a thread, and runs again if its transaction was rolled back."""
Query = Select[*tuple[Any, ...]]
Rows = Sequence[Row[*tuple[Any, ...]]]

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Transaction(Generic[T]):
    """A work, and the function that begins its transaction and takes the locks; None if the work only reads."""

    work: Work[T]
    begin: Work[object] | None = None
    has_begun: bool = False
    """True after `begin` has returned in the last attempt."""

    def run(self, connection: Connection) -> T:
        """Run the work, commit if it writes, and return its result."""
        if self.begin is None:
            return self.work(connection)
        self.begin(connection)
        self.has_begun = True
        result = self.work(connection)
        connection.commit()
        return result


@dataclass(slots=True, eq=False)
class _Write:
    """A write that waits, and the future for its result."""

    work: Work[Any]
    done: "asyncio.Future[Any]"


class Database(ABC):
    """A database; see the module."""

    sweep_seconds: ClassVar[float]
    """The interval in which servers look for changes whose notifications may have been lost."""

    insert: Callable[[Table], Any]
    """Returns the database's `INSERT`, which supports `ON CONFLICT`."""
    file: Path | None = None
    """The path of the database file; None for a database server and for a database in memory."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.on_access: Callable[[StoreAccess], None] = lambda _: None
        """Called after every read and write."""
        self._engine = engine
        self.where = engine.url.render_as_string(hide_password=True)
        words = bindparam("text", type_=Text)
        self._add_words = {
            index: insert(index).values(rowid=bindparam("row"), words=self._as_indexed(index, words))
            for index in (MEMORY_WORDS, MESSAGE_WORDS)
        }
        self._is_in_trouble = False
        self._written_at = 0.0
        self._reset()

    def _reset(self) -> None:
        """Create the objects that belong to one event loop: the database may be started again in another one."""
        self._is_starting = True
        self._health: asyncio.Task[StorageError | None] | None = None
        self._waiting: list[_Write] = []
        self._writer: asyncio.Task[None] | None = None
        self._single_writes: set[asyncio.Task[bool]] = set()

    def make_bus(self) -> Bus:
        """Return a bus between the servers of this database."""
        return Bus()

    async def start(self) -> None:
        """Connect, and create or migrate the tables.

        Raises `StorageError` if the database cannot be reached, or was made by a newer version.
        """
        self._reset()
        async with alembic_lock(), AsyncExitStack() as unless_started:
            unless_started.push_async_callback(self.close)
            self._prepare_file()
            migration = Transaction(migrate, self._begin_migration)
            await self._transact(migration, PATIENCE_SECONDS, self._migration_engine())
            unless_started.pop_all()
        self._is_starting = False

    def _prepare_file(self) -> None:  # noqa: B027 - only SQLite has a file
        """Create the database file, readable by its owner only; raises `StorageError`."""

    async def close(self) -> None:
        """Try to write everything that waits, and close all connections."""
        if writers := {task for task in (self._writer, *self._single_writes) if task}:
            await asyncio.wait(writers)
        # A server that no longer answers would block the close.
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._dispose()

    async def _dispose(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    async def missing_migrations(self) -> int:
        """Return the number of migrations that the database lacks.

        Raises `StorageError` if the database cannot be read, or was made by a newer version.
        """
        return await self.read(count_missing)

    async def check_integrity(self) -> None:  # noqa: B027 - PostgreSQL checks its files itself
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
            await self._transact(Transaction(self._touch, self._begin_write), HEALTH_PATIENCE_SECONDS)
        except StorageError as error:
            # Another write succeeded during this one: the database is busy, not broken.
            return None if self._written_at > began else error
        return None

    def _check_free_space(self) -> None:  # noqa: B027 - the disk of a database server is not visible here
        """Raise `StorageError` if the disk is full."""

    @abstractmethod
    def _touch(self, connection: Connection) -> None:
        """Write without changing anything."""

    @abstractmethod
    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text with a collation that compares code points."""

    def serialize_writes(self, connection: Connection, key: str) -> None:  # noqa: B027 - SQLite has one writer at a time
        """Wait until no other transaction that called this with the same key is open."""

    @abstractmethod
    def find_words(self, index: TableClause, wanted: Sequence[Term]) -> Subquery:
        """Return the rows of an index that match any of the terms: `rowid`, and `rank`, where lower is better."""

    def index_words(self, connection: Connection, index: TableClause, row_id: int, text: str) -> None:
        """Add a new row to an index."""
        if words := index_text(text):
            connection.execute(self._add_words[index], {"row": row_id, "text": words})

    def _as_indexed(self, _index: TableClause, words: ColumnElement[str]) -> ColumnElement[Any]:
        """Return the value that an index stores for these words."""
        return words

    async def read(self, work: Work[T], *, is_patient: bool = False) -> T:
        """Run `work`, which must only read, and return its result.

        With `is_patient` it waits as long as a write does for a temporary failure to end.
        """
        with self._measuring("read"):
            return await self._transact(Transaction(work), None if is_patient else 0)

    async def fetch(self, query: Query) -> Rows:
        """Return the rows of a query."""
        return await self.read(lambda connection: connection.execute(query).all())

    async def pages(self, query: Query, key: Sequence[Column[Any]]) -> AsyncIterator[Rows]:
        """Yield the rows of a query page by page, ordered by a unique key; text is ordered by code points."""
        by_code_point = self.by_code_point
        order = tuple_(*(by_code_point(one) if one.type.python_type is str else one for one in key))
        page = query.order_by(*order).limit(ROWS_PER_PAGE)
        rows = await self.fetch(page)
        while rows:
            # Outside of the read: the caller may be slow, and must not hold a connection.
            yield rows
            if len(rows) < ROWS_PER_PAGE:
                return
            last = [getattr(rows[-1], one.name) for one in key]
            rows = await self.fetch(page.where(order > tuple_(*last)))

    async def scalar(self, query: Query) -> Any:
        """Return the first value of a query's first row, None if there is no row."""
        return await self.read(lambda connection: connection.scalar(query))

    async def execute(self, statement: Executable) -> int:
        """Run one writing statement; return the number of affected rows."""
        return await self.write(lambda connection: connection.execute(statement).rowcount)

    async def put(self, into: Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Insert a row, or update the row with the same key."""
        row = self.insert(into).values(**key, **values)
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

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result after the commit.

        `work` must be short, because other writes wait for it. It runs again if the connection was lost, or if another
        write in the same transaction failed. Locks are waited for before its first statement.
        """
        writing = _Write(work, asyncio.get_running_loop().create_future())
        self._waiting.append(writing)
        if self._writer is None:
            # An empty context, so that its log lines are not attributed to the request that happened to start it.
            self._writer = asyncio.create_task(self._write_all(), name="write", context=Context())
        with self._measuring("write"):
            result: T = await writing.done
        return result

    @property
    def waiting_writes(self) -> int:
        """The number of writes that wait for the current transaction to end."""
        return len(self._waiting)

    async def _write_all(self) -> None:
        # Let the tasks that are ready add their writes to the same transaction.
        await asyncio.sleep(0)
        try:
            while self._waiting:
                # Skip writes that were cancelled while they waited.
                waiting = [writing for writing in self._waiting if not writing.done.done()]
                group = waiting[:WRITES_AT_ONCE]
                self._waiting = waiting[WRITES_AT_ONCE:]
                if group and not await self._write_group(group):
                    # Concurrently, so that a write that waits for a lock does not delay the others.
                    for writing in group:
                        task = asyncio.create_task(self._write_group([writing]), name="single write")
                        self._single_writes.add(task)
                        task.add_done_callback(self._single_writes.discard)
        finally:
            self._writer = None

    async def _write_group(self, group: Sequence[_Write]) -> bool:
        """Run a group of writes in one transaction and set their results.

        Returns False, without setting results, if one write of several failed: the caller runs each of them alone.
        """
        transaction = Transaction(
            lambda connection: [writing.work(connection) for writing in group],
            lambda connection: self._begin_write(connection, len(group)),
        )
        written = asyncio.ensure_future(self._transact(transaction))
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

    async def _transact(
        self,
        transaction: Transaction[T],
        patience_seconds: float | None = None,
        engine: AsyncEngine | None = None,
    ) -> T:
        """Run a transaction on a connection and return its result. Failures of the database become `StorageError`.

        If a temporary failure keeps it from beginning, it is retried for `patience_seconds`, by default as long as
        writes wait now. If the connection was lost, it is repeated once at once: idle connections are lost with a
        restart of the database server, and the pool then replaces all of them.
        """
        if patience_seconds is None:
            patience_seconds = PATIENCE_IN_TROUBLE_SECONDS if self._is_in_trouble else PATIENCE_SECONDS
        deadline = time.monotonic() + patience_seconds
        is_writing = transaction.begin is not None
        try:
            async with self._write_lock(deadline) if is_writing else nullcontext():
                result = await self._attempt(transaction, deadline, engine or self._engine)
        except UnknownVersion as error:
            why = "it was made by another version of Callboard"
            raise self._make_failure(why, error, "install that version") from error
        except (SQLAlchemyError, OSError) as error:
            is_patient = patience_seconds >= PATIENCE_SECONDS
            if is_database_failure(error) and (is_patient if is_temporary(error) else is_writing):
                self._is_in_trouble = True
            raise self._translate(error) from error
        if is_writing:
            self._is_in_trouble = False
            self._written_at = time.monotonic()
        return result

    async def _attempt(self, transaction: Transaction[T], deadline: float, engine: AsyncEngine) -> T:
        """Run a transaction, again after failures as `_transact` says. Raises the database's own errors."""
        has_reconnected = False
        while True:
            transaction.has_begun = False
            try:
                return await self._run(transaction, engine)
            except (SQLAlchemyError, OSError) as error:
                if not has_reconnected and is_connection_lost(error):
                    has_reconnected = True
                    continue
                if transaction.has_begun or not is_temporary(error) or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _run(self, transaction: Transaction[T], engine: AsyncEngine) -> T:
        """Run a transaction on a connection of an engine; roll back what it did not commit."""
        async with engine.connect() as connection:
            return await connection.run_sync(transaction.run)

    @abstractmethod
    def hold_lease(self, server_id: str, lease_seconds: float) -> AbstractAsyncContextManager[None]:
        """Show other servers, until the block ends, that this server is running; see `StoredRuns.open`."""

    @abstractmethod
    async def is_alone(self) -> bool:
        """Return whether no other server uses the database, as far as this one knows."""

    @abstractmethod
    async def find_dead_servers(self, server_ids: Collection[str]) -> set[str]:
        """Return those of the servers that are no longer running."""

    def _write_lock(self, _deadline: float) -> AbstractAsyncContextManager[None]:
        """Hold the lock of this process for one writer at a time, if the database needs one."""
        return nullcontext()

    @abstractmethod
    def _begin_write(self, connection: Connection, writes: int = 1) -> None:
        """Begin the transaction of so many writes."""

    def _begin_migration(self, connection: Connection) -> None:
        """Begin the transaction of a migration, which waits for the migrations of other servers."""
        self._begin_write(connection)

    def _migration_engine(self) -> AsyncEngine:
        """Return an engine whose statements may take as long as a migration does."""
        return self._engine

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

    def _translate(self, error: Exception) -> StorageError:
        advice = "check free disk space, permissions and other programs that use it"
        return self._make_failure(describe_failure(error), error, advice)

    def _make_failure(self, why: str, error: Exception | None = None, advice: str = "") -> StorageError:
        if self._is_starting:
            detail = getattr(error, "orig", None) or error
            return StorageError(
                f"the database {self.where} cannot be used: {why} ({detail}); {advice}, or set CALLBOARD_DATABASE_URL"
            )
        _log.error("database_failed", database=self.where, reason=why, error=str(error or ""))
        return StorageError(f"the server's database cannot be used just now: {why}. The server's log says more.")
