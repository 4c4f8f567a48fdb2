"""PostgreSQL's own: time-outs of its server, full text as `tsvector`, locks by a key."""

import math
import shlex
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Engine,
    Subquery,
    Table,
    cast,
    collate,
    event,
    extract,
    func,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import REGCONFIG
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from callboard.errors import StorageError
from callboard.storage.sql import database
from callboard.storage.sql.database import Database, T, Work
from callboard.storage.sql.postgresql_lease import CHANNEL, PostgresqlLease
from callboard.storage.sql.tables import WordIndex, servers
from callboard.storage.words import Term, to_tsquery

MIGRATION_SECONDS = 3600
REST_SECONDS = 1.0
"""The seconds that a connection may have rested and be taken for good: looking costs a quarter of an event."""
SHARED_LOCK_SECONDS = 1
"""The seconds that writes in one transaction wait for a lock of somebody else."""
SIMPLE = cast("simple", REGCONFIG)
"""PostgreSQL's configuration without any language: no stemming, no stop words."""
ENGLISH = cast("english", REGCONFIG)
"""Its configuration that knows English words by their stems, and has stop words."""
SHORTER_FIRST = 1
"""The normalisation of `ts_rank` that divides by 1 + the logarithm of the text's length, as `bm25` does in its way."""

_RETURNED_AT = "callboard_returned_at"
"""Where the pool's record of a connection has the time at which it was given back."""


class PostgresqlDatabase(Database):
    """A database on a server. The server may have been started anew, or say nothing any more."""

    # However long the other takes: the time-out is for the locks of those who only write.
    alone = "SELECT set_config('lock_timeout', '0', true), pg_advisory_xact_lock(hashtext('callboard migrations'))"
    sweep_seconds = 1.0
    _lease: PostgresqlLease | None = None

    async def examine(self) -> None:
        """Do nothing: the server looks at itself."""

    def back_up(self, copy: Path) -> None:
        """Raise `StorageError`, with PostgreSQL's own command."""
        # The name of the driver is ours, and the password is for no command line.
        url = self._engine.url
        named = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
        command = shlex.join(["pg_dump", "--format=custom", f"--file={copy}", named.render_as_string()])
        raise StorageError(
            f"the database is PostgreSQL's, which copies itself: run {command}, with the password in ~/.pgpass, and "
            "pg_restore to put it back"
        )

    def insert(self, into: Table) -> Any:
        """Return PostgreSQL's `INSERT`."""
        return postgresql.insert(into)

    def now(self) -> ColumnElement[float]:
        """Return the clock of the database's server."""
        return cast(extract("epoch", func.clock_timestamp()), Double)

    @asynccontextmanager
    async def be_there(
        self, server_id: str, lease_seconds: float, on_news: Callable[[str], None]
    ) -> AsyncIterator[None]:
        """Hold a lease by the database's clock."""
        make_engine = partial(_create_engine, self._engine.url, lease_seconds, poolclass=NullPool)
        self._lease = PostgresqlLease(make_engine, self.now(), server_id, lease_seconds)
        async with self._lease.held(on_news):
            yield

    def was_alone(self) -> bool:
        """Return whether no other server had a lease when this one was last renewed."""
        return self._lease is None or self._lease.was_alone

    async def is_alone(self) -> bool:
        """Return False: others may come at any time."""
        return False

    def tell(self, server_id: str, run_id: ColumnElement[str]) -> ColumnElement[Any]:
        """Return a call of `pg_notify`: those who listen are told when the transaction is committed."""
        return func.pg_notify(CHANNEL, literal(f"{server_id} ") + run_id)

    async def find_gone(self, server_ids: Collection[str]) -> set[str]:
        """Return those whose lease has run out."""
        here = select(servers.c.id).where(servers.c.id.in_(server_ids), servers.c.lease_until > self.now())
        return set(server_ids) - {row.id for row in await self.fetch(here)}

    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text in the order of no language."""
        return collate(text, "C")

    def queue_up(self, connection: Connection, key: str) -> None:
        """Take a lock by a number made of the key."""
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(key))))

    def hits(self, index: WordIndex, wanted: Sequence[Term]) -> Subquery:
        """Return the rows whose `tsvector` matches."""
        rows = index.table()
        plain = func.to_tsquery(SIMPLE, to_tsquery(wanted))
        english = func.to_tsquery(ENGLISH, to_tsquery(wanted, stems=True))
        query = plain.op("||")(english) if index.stems else plain
        rank = -func.ts_rank(rows.c.words, query, SHORTER_FIRST)
        return select(rows.c.rowid, rank.label("rank")).where(rows.c.words.bool_op("@@")(query)).subquery()

    def _as_indexed(self, index: WordIndex, words: ColumnElement[str]) -> ColumnElement[Any]:
        plain = func.to_tsvector(SIMPLE, words)
        return plain.op("||")(func.to_tsvector(ENGLISH, words)) if index.stems else plain

    def _create_engine(self, url: URL) -> Engine:
        self._engine = _create_engine(url, database.STATEMENT_SECONDS)
        engine = self._engine.sync_engine
        event.listen(engine, "checkin", _note_return)
        event.listen(engine, "checkout", partial(_look_after_rest, engine.dialect))
        return engine

    async def _run(self, work: Work[T]) -> T:
        async with self._engine.connect() as connection:
            return await connection.run_sync(work)

    async def _run_migration(self, work: Work[T]) -> T:
        engine = _create_engine(self._engine.url, MIGRATION_SECONDS, poolclass=NullPool)
        async with engine.connect() as connection:
            return await connection.run_sync(work)

    async def _dispose(self) -> None:
        await self._engine.dispose()

    def _set_up(self, connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = '{database.PATIENCE_SECONDS}s'")
        # So that the server, too, gives up what nobody waits for any more.
        cursor.execute(f"SET statement_timeout = '{database.STATEMENT_SECONDS}s'")
        cursor.close()

    def _begin_to_write_together(self, connection: Connection) -> None:
        # One that waits for a lock must not hold up the others: they are then written each by itself.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{SHARED_LOCK_SECONDS}s'")

    def _tidy_up(self, _connection: Connection) -> None:
        # It is the server that was meant; only what is written while that is in doubt is run again.
        self._is_doubtful = False

    def _touch(self, connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


def _create_engine(url: URL, statement_seconds: float, **options: Any) -> AsyncEngine:
    arguments = {"timeout": database.CONNECT_SECONDS, "command_timeout": statement_seconds}
    # What people said is not for the log.
    return create_async_engine(url, connect_args=arguments, hide_parameters=True, **options)


def _note_return(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_RETURNED_AT] = time.monotonic()


def _look_after_rest(dialect: Dialect, connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Have a connection replaced that is lost: its server may have been started anew since it was last used."""
    if time.monotonic() - record.info.get(_RETURNED_AT, math.inf) < REST_SECONDS:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error
