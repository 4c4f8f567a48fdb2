"""A store in SQLite or PostgreSQL."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import structlog
from sqlalchemy import and_, delete, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from callboard._extras import how_to_install
from callboard._history import CompactResults, Turn, TurnRows
from callboard.errors import StorageError
from callboard.storage.bus import Bus
from callboard.storage.rows import check_namespace
from callboard.storage.sql import run_calls, users
from callboard.storage.sql.audit import Audit
from callboard.storage.sql.chats import Chats, PastChats, Responses, delete_chats
from callboard.storage.sql.database import ROWS_AT_ONCE, Database
from callboard.storage.sql.overview import Overview
from callboard.storage.sql.personal import Memories, Profile, Records, SelfNotes
from callboard.storage.sql.postgresql import PostgresqlDatabase
from callboard.storage.sql.run_log import RunLog
from callboard.storage.sql.run_record import NewRun, RunRecord
from callboard.storage.sql.sqlite import SqliteDatabase
from callboard.storage.sql.tables import chats, messages, response_items, responses, runs
from callboard.storage.sql.turn_writer import TurnWriter
from callboard.storage.sql.usage import Usage, UsageStatements, drop_usage
from callboard.storage.values import OWN_CHAT_PREFIX, RESPONSE_PREFIX, Line, LoggedRun, StoreAccess, StoreQueues

DATABASES: dict[str, type[Database]] = {"sqlite": SqliteDatabase, "postgresql": PostgresqlDatabase}

_log = structlog.get_logger(__name__)


class Store:
    """A store in the database of a URL, as SQLAlchemy writes them.

    Servers of a PostgreSQL notify each other through the Redis of `redis_url`, or through the database if there is
    none. Nothing is made, migrated or even looked at before `start`. Raises `StorageError` if a URL is wrong.
    """

    def __init__(self, url: str, redis_url: str | None = None) -> None:
        self.database = _make_database(url)
        self._make_bus = _choose_bus(self.database, redis_url)
        self._has_useless_redis = redis_url is not None and self._make_bus is Bus
        self._audit = Audit(self.database)
        self._usage_statements = UsageStatements(self.database.dialect)

    @classmethod
    async def open(cls, url: str, redis_url: str | None = None) -> "Store":
        """Return a store that is started."""
        store = cls(url, redis_url)
        await store.start()
        return store

    async def start(self) -> None:
        """Connect, create what is missing, migrate to the newest tables.

        Raises `StorageError` if the database cannot be reached, or was made by a newer version.
        """
        if self._has_useless_redis:
            _log.warning("redis_url_has_no_effect", reason="SQLite is for one server: there is no other to notify")
        await self.database.start()

    async def close(self) -> None:
        """Write what waits to be written, if it can be, and let go of every connection."""
        await self.database.close()

    async def check(self) -> None:
        """Raise `StorageError` where nothing can be written now."""
        await self.database.check()

    def measure(self, on_access: Callable[[StoreAccess], None]) -> None:
        """Call `on_access` with every access to the database from here on."""
        self.database.on_access = on_access

    @property
    def queues(self) -> StoreQueues:
        """What waits at this moment."""
        return StoreQueues(self.database.waiting_writes, len(self.database.late))

    def turn(self, turn: Turn, compact_results: CompactResults = "cited") -> TurnWriter:
        """Return what writes the rows of a turn."""
        return TurnWriter(self.database, TurnRows(turn, compact_results))

    def record(
        self,
        run_log: RunLog,
        run: LoggedRun,
        turn: TurnWriter | None,
        *,
        new: NewRun | None = None,
        keep_audit_days: float = 0.0,
    ) -> RunRecord:
        """Return the record of a run of this server; see `RunRecord`."""
        return RunRecord(self.database, run_log, self._audit, run, turn, new=new, keep_audit_days=keep_audit_days)

    def chats(self, user_id: object) -> Chats:
        """Return the chats of a user; of every user for `ANY_USER`."""
        return Chats(self.database, user_id)

    def overview(self, user_id: object) -> Overview:
        """Return what a person looks through, of a user; of every user for `ANY_USER`."""
        return Overview(self.database, user_id)

    def responses(self, user_id: str | None) -> Responses:
        """Return what a user's clients refer to."""
        return Responses(self.database, user_id)

    def memories(self, user_id: str) -> Memories:
        """Return the memories of a user."""
        return Memories(self.database, user_id)

    def profile(self, user_id: str) -> Profile:
        """Return the profile of a user."""
        return Profile(self.database, user_id)

    def self_notes(self, agent_id: str, user_id: str) -> SelfNotes:
        """Return what an agent has written about itself for a user."""
        return SelfNotes(self.database, agent_id, user_id)

    def past_chats(self, user_id: str, current_chat_id: str | None) -> PastChats:
        """Return a user's chats but for the one that is going on."""
        return PastChats(self.database, user_id, current_chat_id)

    def records(self, namespace: str, user_id: str) -> Records:
        """Return what a skill keeps of a user. `namespace` is the skill's alone: its id, at most 64 characters.

        Raises `ValueError` for one that is longer or empty.
        """
        check_namespace(namespace)
        return Records(self.database, namespace, user_id)

    def audit(self) -> Audit:
        """Return the audit."""
        return self._audit

    def usage(self, user_id: str) -> Usage:
        """Return what a user has used of the day; "" stands for all who named none."""
        return Usage(self.database, self._usage_statements, user_id)

    async def drop_traces(self) -> None:
        """Empty what the database keeps for itself of deleted rows."""
        await self.database.truncate_log()

    async def drop_usage(self) -> int:
        """Forget what was used on days that are over; returns of how many users."""
        return await drop_usage(self.database)

    def run_log(self, server_id: str) -> RunLog:
        """Return the log of runs, as that server writes it."""
        return RunLog(self.database, server_id, self._make_bus())

    async def close_interrupted_calls(self) -> int:
        """Mark the calls that were open when the server last stopped; returns how many there were.

        Calls that a client runs stay open: their results may still come.
        """
        return await self.database.write(run_calls.close_open_calls)

    async def forget_own_chat(self, chat_id: str) -> None:
        """Forget a chat that no client has named, unless a response is kept in it."""
        if not chat_id.startswith(OWN_CHAT_PREFIX):
            return
        await self.database.late.store(chat_id)
        is_kept = select(responses.c.run_id).where(responses.c.chat_id == chat_id).exists()
        await self.database.execute(delete(chats).where(chats.c.id == chat_id, ~is_kept))

    def read_user(self, user_id: str) -> AsyncIterator[list[Line]]:
        """Return all that is kept of a user but the log of runs, piece by piece; each line says of what `kind` it is.

        Chats come first, each followed by its messages.
        """
        return users.read_user(self.database, user_id)

    async def forget_user(self, user_id: str, key: str | None = None) -> Mapping[str, int]:
        """Forget all that is kept of a user but the log of runs; returns how much of each kind there was.

        The audit keeps its entries without arguments, and says that `key` had them forgotten. What they have used today
        stays until the day is over: else it would be given back.
        """
        forgotten = await users.forget_user(self.database, user_id)
        arguments = await self.audit().forget_user(user_id, key)
        await self.database.drop_deleted_words()
        return {**forgotten, "audited_arguments": arguments}

    async def drop_chats(self, before: float) -> int:
        """Forget the chats that a client has named and nobody went on with since then; returns how many.

        A chat in which a run goes on stays.
        """
        is_own = chats.c.id.startswith(OWN_CHAT_PREFIX, autoescape=True)
        goes_on = select(runs.c.id).where(runs.c.chat_id == chats.c.id, runs.c.ended_at.is_(None)).exists()
        return await delete_chats(self.database, ~is_own & (chats.c.updated_at < before) & ~goes_on)

    async def drop_uncited(self, before: float) -> int:
        """Keep of results that ended before then only what is replayed; returns how many."""
        is_old = and_(messages.c.replay_output.is_not(None), messages.c.ended_at < before)
        some = select(messages.c.id).where(is_old).limit(ROWS_AT_ONCE)
        lean = {"tool_output": messages.c.replay_output, "replay_output": None}
        make_lean = update(messages).where(messages.c.id.in_(some)).values(lean)
        return await self.database.write_in_batches(lambda connection: connection.execute(make_lean).rowcount)

    async def drop_own_chats(self, before: float) -> int:
        """Forget the chats that no client has named and nobody went on with since then; returns how many."""
        is_old = chats.c.id.startswith(OWN_CHAT_PREFIX, autoescape=True) & (chats.c.updated_at < before)
        return await self.database.delete_in_batches(chats, is_old)

    async def drop_response_items(self, before: float) -> int:
        """Forget the responses that were written before then; returns how many items they had."""
        is_old = response_items.c.created_at < before
        is_response = response_items.c.id.startswith(RESPONSE_PREFIX, autoescape=True)
        await self.database.delete_in_batches(response_items, is_old & is_response)
        return await self.database.delete_in_batches(response_items, is_old)


def _make_database(url: str) -> Database:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StorageError(f"CALLBOARD_DATABASE_URL cannot be used: {error}") from error
    kind = DATABASES.get(parsed.get_backend_name())
    if kind is None:
        where = parsed.render_as_string(hide_password=True)
        raise StorageError(f"CALLBOARD_DATABASE_URL cannot be used: {where} is neither SQLite nor PostgreSQL")
    return kind(parsed)


def _choose_bus(database: Database, redis_url: str | None) -> Callable[[], Bus]:
    """Return what makes a bus for each server id."""
    if not isinstance(database, PostgresqlDatabase):
        return Bus
    if redis_url is None:
        return database.make_bus
    try:
        from callboard.storage.redis_bus import RedisBus, read_address
    except ImportError as error:
        raise StorageError(f"CALLBOARD_REDIS_URL cannot be used: {error}. {how_to_install('redis')}") from error
    return partial(RedisBus, redis_url, read_address(redis_url))
