"""The database on a PostgreSQL server, with timeouts for a server that was restarted or no longer answers."""

import shlex
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, ColumnElement, Connection, Subquery, TableClause, cast, collate, event, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import REGCONFIG
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, Pool

from callboard.errors import StorageError
from callboard.storage.sql import database
from callboard.storage.sql.database import Database
from callboard.storage.sql.postgresql_bus import PostgresqlBus
from callboard.storage.sql.postgresql_lease import PostgresqlLease
from callboard.storage.sql.tables import MEMORY_WORDS, now, servers
from callboard.storage.words import Term, to_tsquery

MIGRATION_SECONDS = 3600
BUS_ANSWER_SECONDS = 5.0
SHARED_LOCK_SECONDS = 1
"""The longest time that a transaction of several writes waits for a lock."""
SIMPLE = cast("simple", REGCONFIG)
"""The text search configuration without stemming and stop words."""
ENGLISH = cast("english", REGCONFIG)
"""The text search configuration with English stemming and stop words."""
SHORTER_FIRST = 1
"""The normalisation of `ts_rank` that divides by 1 + log(length); FTS5's `bm25` also ranks shorter texts higher."""


class PostgresqlDatabase(Database):
    """A database on a PostgreSQL server."""

    sweep_seconds = 1.0
    insert = staticmethod(postgresql.insert)
    _lease: PostgresqlLease | None = None

    def __init__(self, url: URL) -> None:
        engine = _create_engine(url, database.STATEMENT_SECONDS)
        event.listen(engine.sync_engine, "connect", _limit_waits)
        event.listen(engine.sync_engine, "handle_error", _disconnect_after_timeout)
        super().__init__(engine)

    def back_up(self, copy: Path) -> None:
        """Raise `StorageError` with the command of PostgreSQL that makes a copy."""
        raise self._refer_to(["pg_dump", "--format=custom", f"--file={copy}", self._address])

    def restore(self, copy: Path) -> None:
        """Raise `StorageError` with the commands of PostgreSQL that restore a copy and interrupt its active runs."""
        address = f"--dbname={self._address}"
        restore = ["pg_restore", "--clean", "--if-exists", address, str(copy)]
        raise self._refer_to(restore, ["psql", address, f"--command={database.INTERRUPT_ACTIVE_RUNS}"])

    @property
    def _address(self) -> str:
        """The URL for PostgreSQL's commands: without SQLAlchemy's driver name, and without the password."""
        url = self._engine.url
        named = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
        return named.render_as_string()

    def _refer_to(self, *commands: Sequence[str]) -> StorageError:
        return StorageError(
            f"PostgreSQL copies and restores its databases itself: run {' && '.join(map(shlex.join, commands))}, "
            "with the password in ~/.pgpass; stop every server before a restore"
        )

    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text with the collation `C`."""
        return collate(text, "C")

    def serialize_writes(self, connection: Connection, key: str) -> None:
        """Take an advisory lock until the end of the transaction; its number is a hash of the key."""
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(key))))

    def find_words(self, index: TableClause, wanted: Sequence[Term]) -> Subquery:
        """Return the rows whose `tsvector` matches."""
        plain = func.to_tsquery(SIMPLE, to_tsquery(wanted))
        english = func.to_tsquery(ENGLISH, to_tsquery(wanted, stems=True))
        query = plain.op("||")(english) if index is MEMORY_WORDS else plain
        rank = -func.ts_rank(index.c.words, query, SHORTER_FIRST)
        return select(index.c.rowid, rank.label("rank")).where(index.c.words.bool_op("@@")(query)).subquery()

    def _as_indexed(self, index: TableClause, words: ColumnElement[str]) -> ColumnElement[Any]:
        plain = func.to_tsvector(SIMPLE, words)
        return plain.op("||")(func.to_tsvector(ENGLISH, words)) if index is MEMORY_WORDS else plain

    def make_bus(self) -> PostgresqlBus:
        """Return a bus that uses `LISTEN` and `NOTIFY` with a connection of its own."""
        return PostgresqlBus(self.where, _create_engine(self._engine.url, BUS_ANSWER_SECONDS, NullPool))

    @asynccontextmanager
    async def hold_lease(self, server_id: str, lease_seconds: float) -> AsyncIterator[None]:
        """Hold a lease, timed by the database's clock."""
        engine = _create_engine(self._engine.url, lease_seconds, NullPool)
        self._lease = PostgresqlLease(engine, server_id, lease_seconds)
        async with self._lease.held():
            yield

    async def is_alone(self) -> bool:
        """Return whether the last renewals of this server's lease found no lease of another server."""
        return self._lease is None or self._lease.peers.is_alone

    async def find_dead_servers(self, server_ids: Collection[str]) -> set[str]:
        """Return the servers whose leases have expired."""
        alive = select(servers.c.id).where(servers.c.id.in_(server_ids), servers.c.lease_until > now())
        return set(server_ids) - {row.id for row in await self.fetch(alive)}

    def _migration_engine(self) -> AsyncEngine:
        return _create_engine(self._engine.url, MIGRATION_SECONDS, NullPool)

    def _begin_write(self, connection: Connection, writes: int = 1) -> None:
        # A write that waits for a lock must not delay the others: after this timeout each runs in its own transaction.
        if writes > 1:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{SHARED_LOCK_SECONDS}s'")

    def _begin_migration(self, connection: Connection) -> None:
        # Without a timeout, because the migration of another server may take long.
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        self.serialize_writes(connection, "callboard migrations")

    def _touch(self, connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


def _create_engine(url: URL, statement_seconds: float, pool: type[Pool] | None = None) -> AsyncEngine:
    arguments = {"timeout": database.CONNECT_SECONDS, "command_timeout": statement_seconds}
    # `hide_parameters` keeps users' texts out of error messages and so out of the log.
    return create_async_engine(url, connect_args=arguments, hide_parameters=True, poolclass=pool)


def _limit_waits(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET lock_timeout = '{database.PATIENCE_SECONDS}s'")
    # So that the server also ends statements whose client has given up.
    cursor.execute(f"SET statement_timeout = '{database.STATEMENT_SECONDS}s'")
    cursor.close()


def _disconnect_after_timeout(context: ExceptionContext) -> None:
    """Discard a connection whose server did not answer in time, because a rollback would wait for the server again."""
    if isinstance(context.original_exception, TimeoutError):
        context.is_disconnect = True
