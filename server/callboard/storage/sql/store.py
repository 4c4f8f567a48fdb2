"""The store in SQLite or PostgreSQL."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import structlog
from sqlalchemy import and_, delete, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from callboard._history import CompactResults, Turn, TurnRows
from callboard.errors import StorageError
from callboard.extras import how_to_install
from callboard.storage.bus import Bus
from callboard.storage.rows import INTERRUPTED_CALL
from callboard.storage.sql import users
from callboard.storage.sql.chats import IS_OWN, Chats, delete_chats
from callboard.storage.sql.database import ROWS_AT_ONCE, Database
from callboard.storage.sql.memories import Memories
from callboard.storage.sql.overview import Overview
from callboard.storage.sql.past_chats import PastChats
from callboard.storage.sql.personal import Profile, Records, SelfNotes
from callboard.storage.sql.responses import Responses
from callboard.storage.sql.run_record import RunRecord, TurnWriter
from callboard.storage.sql.sqlite import SqliteDatabase
from callboard.storage.sql.stored_runs import IS_ACTIVE, StoredRuns
from callboard.storage.sql.tables import chats, messages, now, response_items, responses, runs, usage
from callboard.storage.sql.usage import Usage
from callboard.storage.sql.waiting import IS_OPEN, list_waiting_approvals
from callboard.storage.values import (
    OWN_CHAT_PREFIX,
    RESPONSE_PREFIX,
    SECONDS_A_DAY,
    Line,
    Page,
    StoreAccess,
    StoredRun,
    WaitingApproval,
)
from callboard_protocol.events import EXTERNAL_ID_PREFIX

_log = structlog.get_logger(__name__)


class Store:
    """The store in the database at a URL, in the form of SQLAlchemy.

    Servers that share a PostgreSQL database notify each other through the Redis at `redis_url`, or through the database
    if `redis_url` is None. Nothing is opened before `start`. Raises `StorageError` if a URL is invalid.
    """

    def __init__(self, url: str, redis_url: str | None = None) -> None:
        self.database = _make_database(url)
        self._make_bus = _choose_bus(self.database, redis_url)

    @classmethod
    async def open(cls, url: str, redis_url: str | None = None) -> "Store":
        """Create and start a store."""
        store = cls(url, redis_url)
        await store.start()
        return store

    async def start(self) -> None:
        """Connect, and create or migrate the tables.

        Raises `StorageError` if the database cannot be reached, or was made by a newer version.
        """
        await self.database.start()

    async def close(self) -> None:
        """Try to write everything that waits, and close all connections."""
        await self.database.close()

    async def check(self) -> None:
        """Raise `StorageError` if the database cannot be written."""
        await self.database.check()

    def measure(self, on_access: Callable[[StoreAccess], None]) -> None:
        """Call `on_access` after every read and write from now on."""
        self.database.on_access = on_access

    @property
    def waiting_writes(self) -> int:
        """The number of writes that wait for a transaction."""
        return self.database.waiting_writes

    def record(
        self,
        stored_runs: StoredRuns,
        run: StoredRun,
        turn: Turn,
        *,
        compact_results: CompactResults = "cited",
    ) -> RunRecord:
        """Return a record for a run of this server, and for the rows of its turn; see `RunRecord`."""
        writer = TurnWriter(self.database, TurnRows(turn, compact_results))
        return RunRecord(stored_runs, run, writer)

    def chats(self, user_id: object) -> Chats:
        """Return the chats of a user; of every user for `ANY_USER`."""
        return Chats(self.database, user_id)

    def overview(self, user_id: object) -> Overview:
        """Return lists and summaries of a user's chats, for the inspector; of every user for `ANY_USER`."""
        return Overview(self.database, user_id)

    async def waiting_approvals(
        self, user_id: object, limit: int, cursor: str | None = None, chat_id: str | None = None
    ) -> Page[WaitingApproval]:
        """Return a page of the waiting approvals of a user, of every user for `ANY_USER`; the newest calls first.

        With `chat_id`, only those of this chat. Raises `RequestError` for an invalid cursor.
        """
        return await list_waiting_approvals(self.database, user_id, limit, cursor, chat_id)

    def responses(self, user_id: str | None) -> Responses:
        """Return the responses and items that a user's clients can refer to."""
        return Responses(self.database, user_id)

    def memories(self, user_id: str) -> Memories:
        """Return the memories of a user."""
        return Memories(self.database, user_id)

    def profile(self, user_id: str) -> Profile:
        """Return the profile of a user."""
        return Profile(self.database, user_id)

    def self_notes(self, agent_id: str, user_id: str) -> SelfNotes:
        """Return the notes that an agent has written about itself for a user."""
        return SelfNotes(self.database, agent_id, user_id)

    def past_chats(self, user_id: str, current_chat_id: str | None) -> PastChats:
        """Return a user's chats except the current one."""
        return PastChats(self.database, user_id, current_chat_id)

    def records(self, namespace: str, user_id: str) -> Records:
        """Return the key-value store of a skill for a user. `namespace` is the skill's id, at most 64 characters.

        Raises `ValueError` if the namespace is longer or empty.
        """
        return Records(self.database, namespace, user_id)

    def usage(self, user_id: str) -> Usage:
        """Return the usage counters of a user; "" for all requests without a user."""
        return Usage(self.database, user_id)

    async def drop_usage(self) -> int:
        """Delete the usage of past days; return the number of users."""
        return await self.database.execute(delete(usage).where(usage.c.day + 1 <= now() / SECONDS_A_DAY))

    def stored_runs(self, server_id: str) -> StoredRuns:
        """Return the stored runs, as the server with this id reads, begins and takes over them."""
        return StoredRuns(self.database, server_id, self._make_bus())

    async def close_interrupted_calls(self) -> int:
        """Mark open calls that no server runs as interrupted; return their number.

        Calls that a client runs stay open, because the client may still send their results.
        """
        # The open calls of open runs end with their runs, which another server may be running.
        open_runs = select(runs.c.id).where(IS_OPEN)
        is_open = and_(
            messages.c.role == "tool",
            messages.c.ended_at.is_(None),
            messages.c.run_id.not_in(open_runs),
            ~messages.c.tool_call_id.startswith(EXTERNAL_ID_PREFIX, autoescape=True),
        )
        end = {"tool_output": f"Error: {INTERRUPTED_CALL}", "error_code": "interrupted", "ended_at": time.time()}
        return await self.database.execute(update(messages).where(is_open).values(end))

    async def forget_own_chat(self, chat_id: str) -> None:
        """Delete a chat whose id the server has made, unless it contains a response."""
        if not chat_id.startswith(OWN_CHAT_PREFIX):
            return
        is_kept = select(responses.c.run_id).where(responses.c.chat_id == chat_id).exists()
        await self.database.execute(delete(chats).where(chats.c.id == chat_id, ~is_kept))

    def read_user(self, user_id: str) -> AsyncIterator[list[Line]]:
        """Yield all data of a user, except runs, page by page; each line has a `kind`.

        Chats come first, each followed by its messages.
        """
        return users.read_user(self.database, user_id)

    async def forget_user(self, user_id: str) -> Mapping[str, int]:
        """Delete all data of a user, except runs; return the number of deleted rows of each kind.

        Today's usage stays until the day ends; otherwise the deletion would reset the quota.
        """
        forgotten = await users.forget_user(self.database, user_id)
        await self.database.drop_deleted_words()
        return forgotten

    async def drop_chats(self, before: float) -> int:
        """Delete the chats with a client's id that were last updated before a time; return their number.

        Chats with an active run stay; a run that waits goes with its chat. `before` is in seconds since the epoch, here
        and in the next methods.
        """
        is_active = select(runs.c.id).where(runs.c.chat_id == chats.c.id, IS_ACTIVE).exists()
        return await delete_chats(self.database, ~IS_OWN & (chats.c.updated_at < before) & ~is_active)

    async def drop_uncited(self, before: float) -> int:
        """Replace full results that ended before a time by their compacted form; return their number."""
        is_old = and_(messages.c.replay_output.is_not(None), messages.c.ended_at < before)
        some = select(messages.c.id).where(is_old).limit(ROWS_AT_ONCE)
        compacted = {"tool_output": messages.c.replay_output, "replay_output": None}
        compact = update(messages).where(messages.c.id.in_(some)).values(compacted)
        return await self.database.write_in_batches(lambda connection: connection.execute(compact).rowcount)

    async def drop_own_chats(self, before: float) -> int:
        """Delete the chats with an id made by the server that were last updated before a time; return their number."""
        is_old = IS_OWN & (chats.c.updated_at < before)
        return await self.database.delete_in_batches(chats, is_old)

    async def drop_response_items(self, before: float) -> int:
        """Delete the responses that were written before a time; return the number of their items."""
        is_old = response_items.c.created_at < before
        is_response = response_items.c.id.startswith(RESPONSE_PREFIX, autoescape=True)
        await self.database.delete_in_batches(response_items, is_old & is_response)
        return await self.database.delete_in_batches(response_items, is_old)


def _make_database(url: str) -> Database:
    try:
        parsed = make_url(url)
        match parsed.get_backend_name():
            case "sqlite":
                return SqliteDatabase(parsed)
            case "postgresql":
                # Imported here, because it takes a tenth of the start of a server, most of which use SQLite.
                from callboard.storage.sql.postgresql import PostgresqlDatabase

                return PostgresqlDatabase(parsed)
            case _:
                problem = f"{parsed.render_as_string(hide_password=True)} is neither SQLite nor PostgreSQL"
    except ArgumentError as error:
        problem = str(error)
    except ImportError as error:
        problem = f"{error}. PostgreSQL needs {how_to_install('postgresql')}"
    raise StorageError(f"CALLBOARD_DATABASE_URL cannot be used: {problem}")


def _choose_bus(database: Database, redis_url: str | None) -> Callable[[], Bus]:
    """Return a function that creates a bus."""
    if redis_url is None:
        return database.make_bus
    if isinstance(database, SqliteDatabase):
        _log.warning("redis_url_has_no_effect", reason="an SQLite database has only one server")
        return database.make_bus
    try:
        from callboard.storage.redis_bus import RedisBus, read_address
    except ImportError as error:
        raise StorageError(f"CALLBOARD_REDIS_URL cannot be used: {error}. {how_to_install('redis')}") from error
    return partial(RedisBus, redis_url, read_address(redis_url))
