"""The database: opened, migrated, checked; the history of a chat read in one query.

Knows tables and nothing of runs. Every failure of the database becomes a `StorageError`
that says which database it was and what to do.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Row, and_, event, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from callboard.errors import StorageError, UnknownChat
from callboard.history.records import ChatHistory, ChatMessageTool, ToolResponse
from callboard.history.tables import chats, messages
from callboard.private_files import create_private_file, make_private, make_private_folder
from callboard_protocol import EXTERNAL_ID_PREFIX

INTERRUPTED = "interrupted"
INTERRUPTED_OUTPUT = "Error: the server stopped while this tool was running; whether it took effect is not known."
BUSY_TIMEOUT_SECONDS = 5
MOST_EXAMINED_BYTES = 512 * 1024 * 1024
SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")

_is_external = messages.c.tool_call_id.startswith(EXTERNAL_ID_PREFIX, autoescape=True)

ALONE = {"sqlite": "BEGIN IMMEDIATE", "postgresql": "SELECT pg_advisory_xact_lock(hashtext('callboard migrations'))"}
"""Lets one server migrate at a time. For SQLite it also makes one transaction of it: its driver begins none by itself
before a change of the tables, and a server that was stopped in between would leave half of them."""


class Store:
    """One database, open."""

    def __init__(self, engine: AsyncEngine, where: str) -> None:
        self._engine = engine
        self._where = where
        # SQLite lets one connection write at a time and its waiters poll; a queue of our own is
        # fair and wakes at once.
        self._writer: asyncio.Lock | None = asyncio.Lock() if engine.dialect.name == "sqlite" else None

    @classmethod
    async def open(cls, url: str) -> "Store":
        """Connect, create what is missing, migrate to the newest tables.

        Raises `StorageError` where the URL is wrong, the database cannot be reached, or it was
        made by a newer version.
        """
        store = cls.unopened(url)
        try:
            if store.file is not None:
                _make_private(store.file)
        except OSError as error:
            raise StorageError(f"CALLBOARD_DATA_DIR cannot be written: {error}") from error
        async with AsyncExitStack() as unless_opened:
            unless_opened.push_async_callback(store.close)
            async with store.writing() as connection:
                await connection.run_sync(_migrate)
            unless_opened.pop_all()
        return store

    @classmethod
    def unopened(cls, url: str) -> "Store":
        """Return the database as it is: nothing of it is made or migrated, or even looked at yet.

        Raises `StorageError` where the URL is wrong.
        """
        try:
            parsed = make_url(url)
            where = parsed.render_as_string(hide_password=True)
            if parsed.get_backend_name() not in ALONE:
                raise StorageError(f"CALLBOARD_DATABASE_URL cannot be used: {where} is neither SQLite nor PostgreSQL")
            engine = create_async_engine(parsed, connect_args=_connect_args(parsed.get_backend_name()))
        except ImportError as error:
            raise StorageError(
                f"CALLBOARD_DATABASE_URL cannot be used: {error}. PostgreSQL needs pip install 'callboard[postgresql]'"
            ) from error
        except ArgumentError as error:
            raise StorageError(f"CALLBOARD_DATABASE_URL cannot be used: {error}") from error
        if engine.dialect.name == "sqlite":
            event.listen(engine.sync_engine, "connect", _set_pragmas)
        return cls(engine, where)

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database; None for any other."""
        return _file(self._engine.url) if self._engine.dialect.name == "sqlite" else None

    async def close(self) -> None:
        """Let go of every connection."""
        await self._engine.dispose()

    async def missing_migrations(self) -> int:
        """Return how many migrations there are that the database has not seen.

        Raises `StorageError` where it cannot be read, or was made by a newer version.
        """
        async with self.reading() as connection:
            return await connection.run_sync(_missing_migrations)

    async def examine(self) -> None:
        """Raise `StorageError` where an SQLite database cannot be written or is damaged; a large one is not read."""
        if self._engine.dialect.name != "sqlite":
            return
        async with self.reading() as connection:
            await connection.exec_driver_sql(ALONE["sqlite"])
            version = (await connection.exec_driver_sql("PRAGMA user_version")).scalar_one()
            # What it is already, and taken back.
            await connection.exec_driver_sql(f"PRAGMA user_version = {version:d}")
            await connection.rollback()
        # Not in the same transaction: a server may be at work, and wants to write.
        async with self.reading() as connection:
            pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar_one()
            page_bytes = (await connection.exec_driver_sql("PRAGMA page_size")).scalar_one()
            if pages * page_bytes > MOST_EXAMINED_BYTES:
                return
            found = (await connection.exec_driver_sql("PRAGMA quick_check(1)")).scalar_one()
        if found != "ok":
            raise StorageError(f"the database {self._where} is damaged ({found}): put back a copy of it")

    async def check(self) -> None:
        """Raise `StorageError` where the database does not answer."""
        async with self.reading() as connection:
            await connection.execute(text("SELECT 1"))

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection to read from."""
        with self._failures():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction to write in; keep it short, others wait."""
        with self._failures():
            async with self._writer or nullcontext(), self._engine.begin() as connection:
                yield connection

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except CommandError as error:
            raise StorageError(
                f"the database {self._where} was made by another version of Callboard ({error}): "
                "install that version, or set CALLBOARD_DATABASE_URL to a new database"
            ) from error
        except (SQLAlchemyError, OSError) as error:
            reason = getattr(error, "orig", None) or error
            raise StorageError(
                f"the database {self._where} cannot be used ({reason}): check free space, rights and "
                "other users of it, or set CALLBOARD_DATABASE_URL"
            ) from error

    async def close_interrupted_calls(self) -> int:
        """Mark the calls that were open when the server last stopped; returns how many there were.

        Calls that a client runs stay open: their results may still come.
        """
        async with self.writing() as connection:
            result = await connection.execute(
                update(messages)
                .where(and_(messages.c.role == "tool", messages.c.ended_at.is_(None), ~_is_external))
                .values(tool_output=INTERRUPTED_OUTPUT, error_code=INTERRUPTED, ended_at=time.time())
            )
            return result.rowcount

    async def drop_uncited(self, before: float) -> int:
        """Keep of results that ended before then (seconds since the epoch) only what is replayed; returns how many."""
        async with self.writing() as connection:
            result = await connection.execute(
                update(messages)
                .where(and_(messages.c.replay_output.is_not(None), messages.c.ended_at < before))
                .values(tool_output=messages.c.replay_output, replay_output=None)
            )
            return result.rowcount

    async def load_chat(self, chat_id: str, user_id: str | None) -> ChatHistory:
        """All tool calls of a chat and its model, in one query; empty for a chat that is not known yet.

        Raises `UnknownChat` where the chat is another user's: who asks must not learn that it exists.
        """
        calls = and_(messages.c.chat_id == chats.c.id, messages.c.role == "tool")
        query = (
            select(
                chats.c.user_id,
                chats.c.model,
                messages.c.tool_call_id,
                messages.c.tool_name,
                messages.c.arguments,
                messages.c.round_index,
                messages.c.sequence_index,
                messages.c.message_id,
                messages.c.tool_output,
                messages.c.replay_output,
            )
            .select_from(chats.outerjoin(messages, calls))
            .where(chats.c.id == chat_id)
            .order_by(messages.c.id)
        )
        async with self.reading() as connection:
            rows = (await connection.execute(query)).all()
        if rows and rows[0].user_id != user_id:
            raise unknown_chat(chat_id)
        records = tuple(_record(row) for row in rows if row.tool_call_id is not None)
        seen = frozenset(record.external_tool_call_id for record in records)
        return ChatHistory(seen, records, rows[0].model if rows else None)


def unknown_chat(chat_id: str) -> UnknownChat:
    """The one answer for a chat that does not exist and for a chat of somebody else."""
    return UnknownChat(f"there is no chat {chat_id!r} of this user")


def _record(row: Row[*tuple[Any, ...]]) -> ChatMessageTool:
    output = row.tool_output if row.replay_output is None else row.replay_output
    return ChatMessageTool(
        external_tool_call_id=row.tool_call_id,
        function_name=row.tool_name or "",
        arguments=row.arguments or "",
        round_index=row.round_index or 0,
        sequence_index=row.sequence_index or 0,
        message_id=row.message_id,
        response=None if output is None else ToolResponse(output),
    )


def _file(url: URL) -> Path | None:
    """The file of a SQLite database; None for one in memory."""
    database = url.database or ""
    if database.startswith("file:") and "uri" in url.query:
        database = "" if url.query.get("mode") == "memory" else unquote(urlsplit(database).path)
    # Where it is a link, SQLite puts its other files beside what the link names.
    return Path(database).resolve() if database not in ("", ":memory:") else None


def _make_private(database: Path) -> None:
    """What people said is nobody else's to read. The file is made here: SQLite would ask the umask, and gives the mode
    of the database to the files that it puts beside it."""
    make_private_folder(database.parent)
    try:
        os.close(create_private_file(database))
    except FileExistsError:
        # Not opened: to close it would end the locks that other connections of this process hold.
        for suffix in SQLITE_SUFFIXES:
            make_private(database.with_name(database.name + suffix))


def _connect_args(backend: str) -> dict[str, object]:
    return {"timeout": BUSY_TIMEOUT_SECONDS} if backend == "sqlite" else {}


def _set_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # In WAL mode NORMAL survives a crash of the process; FULL would sync the disk at every status.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _migrate(connection: Connection) -> None:
    connection.exec_driver_sql(ALONE[connection.dialect.name])
    config = _migrations()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _missing_migrations(connection: Connection) -> int:
    seen = MigrationContext.configure(connection).get_current_revision()
    scripts = ScriptDirectory.from_config(_migrations())
    if seen is not None:
        scripts.get_revision(seen)  # says in its own words that it does not know it
    return len(list(scripts.iterate_revisions("head", seen or "base")))


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
