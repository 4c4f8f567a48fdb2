"""Stores a run while it runs: its events, and the rows made from them, one transaction for each batch.

Database failures while a run is stored are handled here. Listeners do not see events before they are stored. A batch is
retried for `PATIENCE_SECONDS`. If it is still not stored and other servers share the database, the run is left to them,
as after a kill. Otherwise nothing more of the run is stored, and it goes on like a run without a stored chat.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cache
from itertools import groupby
from typing import Any, Protocol

import structlog
from sqlalchemy import Connection, Executable, Table, and_, bindparam, delete, func, insert, select, update

from callboard._history import StoredTurn
from callboard._history.turn_rows import MAX_EVENTS, ChangedRow, NewRow, NewStatus, RowChange, Turn, TurnRows
from callboard._history.turns import message_text, read_turns
from callboard.errors import RunLost, StorageError
from callboard.storage.rows import read_history_call
from callboard.storage.sql.database import Database
from callboard.storage.sql.failures import is_database_failure
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages, responses, tool_events
from callboard.storage.values import StoredFrame, StoredRun

PATIENCE_SECONDS = 20.0
"""The longest time that listeners wait for an event to be stored."""
RETRY_SECONDS = 1.0
GATHER_SECONDS = 0.01
"""How long events wait for more after a transaction of their run, unless a task waits until they are stored."""
RELEASE_SECONDS = 5.0
"""The longest time that a stopping server waits for a run's last events to be stored before it hands the run over."""

# Made once: SQLAlchemy caches the compiled statement with the object.
CHAT_CREATED_AT = (
    select(chats.c.created_at)
    .where(chats.c.id == bindparam("chat"))
    # On PostgreSQL the chat cannot be deleted before the end of the transaction.
    .with_for_update(read=True, key_share=True)
)
ADD_ROWS = insert(messages).returning(messages.c.id, sort_by_parameter_order=True)
CHANGE_ROW = update(messages).where(messages.c.id == bindparam("row"))
ADD_STATUS = insert(tool_events)
CHAT_COLUMNS = ("id", "user_id", "user_name", "user_email", "created_at", "updated_at")

_log = structlog.get_logger(__name__)


class _State(Enum):
    """The state of a record: what it does with its batches."""

    STORING = auto()
    """It stores them before listeners see them."""
    UNSTORED = auto()
    """The database has failed: the run goes on, and nothing more of it is stored."""
    STOPPED = auto()
    """The server no longer needs the run: data that was not stored was dropped."""
    LOST = auto()
    """Another server continues the run."""


class RecordListener(Protocol):
    """Receives the state of a record; implemented by the event log of the run."""

    on_lost: Callable[[], None]
    """Called when the run was taken over by another server, or is left to the other servers."""

    def on_shown(self, seq: int) -> None:
        """Send the events up to this number to listeners."""

    def on_stored(self) -> None:
        """Handle that all events so far are stored."""

    def on_rows_dropped(self) -> None:
        """Inform the user that the answer may not be remembered, although its events are stored."""

    def on_unstored(self) -> None:
        """Inform the user that the answer may not be remembered, and send all events to listeners."""


@dataclass(slots=True)
class _Batch:
    """The frames and row changes of one transaction, which may also close the run for messages."""

    frames: list[StoredFrame] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)
    close: Callable[[Connection], None] | None = None

    def __bool__(self) -> bool:
        return bool(self.frames or self.changes or self.close)


class RunRecord:
    """The record of one run of this server."""

    def __init__(self, stored_runs: StoredRuns, run: StoredRun, writer: "TurnWriter") -> None:
        self.writer = writer
        self._failure: StorageError | None = None
        """The failure because of which the rest of the run is not stored here; None if there is none."""
        self._stored_runs = stored_runs
        self._run = run
        self._listener: RecordListener | None = None
        self._waiting = _Batch()
        self._current: _Batch | None = None
        self._state = _State.STORING
        self._storing: asyncio.Task[None] | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._stored_at = 0.0
        self._change: asyncio.Future[None] | None = None

    def report_to(self, listener: RecordListener) -> None:
        """Call `listener` from now on."""
        self._listener = listener

    @property
    def is_unstored(self) -> bool:
        """Whether nothing more of the run is stored, because the database has failed."""
        return self._state is _State.UNSTORED

    @property
    def has_stored_all(self) -> bool:
        """Whether all events so far are stored."""
        return self._state is _State.STORING and not (self._waiting or self._current)

    def append(self, frame: StoredFrame | None = None, changes: Sequence[RowChange] = ()) -> None:
        """Add a frame with its row changes to the next batch; a background task stores the batch, see `GATHER_SECONDS`.

        Row changes without a frame wait for the next one, to share its transaction.
        """
        if self._state is not _State.STORING:
            return
        self._waiting.changes += changes
        if not frame:
            return
        self._waiting.frames.append(frame)
        if self._storing is None and self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_at(self._stored_at + GATHER_SECONDS, self._start_storing)

    def _start_storing(self) -> None:
        if self._gathering:
            self._gathering.cancel()
            self._gathering = None
        if self._state is _State.STORING and self._waiting and self._storing is None:
            self._storing = asyncio.create_task(self._store_waiting(), name=f"record of {self._run.run_id}")

    async def read(self, after: int, max_bytes: int) -> list[bytes]:
        """Return stored frames after number `after`; see `StoredRuns.read`."""
        return await self._stored_runs.read(self._run.run_id, after, max_bytes)

    async def wait_until_stored(self) -> None:
        """Wait until everything added is stored, or until nothing more of the run is stored here."""
        while self._state is _State.STORING and not self.has_stored_all:
            self._start_storing()
            if self._change is None:
                self._change = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._change)

    async def close_messages(self, read: Collection[str]) -> Mapping[str, str]:
        """Take no more messages for the run, if all are in `read`; return the others, none if the database fails."""
        unread: Mapping[str, str] = {}

        def close(connection: Connection) -> None:
            nonlocal unread
            unread = self._stored_runs.close_messages(connection, self._run.run_id, read)

        self._waiting.close = close
        await self.wait_until_stored()
        return unread

    async def store(self) -> None:
        """Wait until everything added is stored. Raises `StorageError` if it cannot be stored, and `RunLost`."""
        await self.wait_until_stored()
        if self._state is _State.LOST:
            raise RunLost(f"run {self._run.run_id!r} now belongs to another server")
        if self._failure:
            raise self._failure

    async def release(self) -> bool:
        """Release the run so that any server can take it over; False if its events cannot be stored completely."""
        self._start_storing()
        if self._storing:
            await asyncio.wait({self._storing}, timeout=RELEASE_SECONDS)
        if not self.has_stored_all:
            return False
        try:
            await self._stored_runs.release(self._run)
        except RunLost:
            pass  # Another server has taken over the run already.
        except StorageError as error:
            _log.warning("run_not_released", run_id=self._run.run_id, error=str(error))
            return False
        return True

    def stop(self) -> None:
        """Stop storing the run; data that is not stored is dropped."""
        if self._state is not _State.LOST:
            self._state = _State.STOPPED
        if self._storing:
            self._storing.cancel()
        self._notify()

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                self._current = self._waiting
                self._waiting = _Batch()
                await self._store_batch(self._current)
                self._current = None
                self._stored_at = asyncio.get_running_loop().time()
                if self._listener and self.has_stored_all:
                    self._listener.on_stored()
        except RunLost:
            self._lose()
        except StorageError as error:
            await self._stop_storing(error)
        finally:
            self._storing = None
            self._notify()

    async def _store_batch(self, batch: _Batch) -> None:
        """Store a batch, retrying for `PATIENCE_SECONDS`. Raises `StorageError`, `RunLost`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        may_be_written = False
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._store_once(batch, may_be_written=may_be_written)
            except RunLost:
                raise
            except TimeoutError:
                raise StorageError("the database takes too long") from None
            except Exception as error:
                cause = error.__cause__ if isinstance(error, StorageError) else error
                if batch.changes and cause is not None and not is_database_failure(cause):
                    # The database would refuse these values again: store the events without rows.
                    self._drop_rows(batch, cause)
                    continue
                if not isinstance(error, StorageError):
                    raise StorageError("the run cannot be stored: see the server's log") from error
                if loop.time() + RETRY_SECONDS >= deadline:
                    raise
            else:
                return
            may_be_written = True
            await asyncio.sleep(RETRY_SECONDS)

    async def _store_once(self, batch: _Batch, *, may_be_written: bool) -> None:
        """Store a batch once; raises `StorageError`, `RunLost`."""

        def write_rows(connection: Connection) -> None:
            nonlocal may_be_written
            self.writer.write(connection, batch.changes, may_be_written=may_be_written)
            if batch.close:
                batch.close(connection)
            # This is called again if the connection was lost, possibly after the commit.
            may_be_written = True

        await self._stored_runs.append(self._run, batch.frames, write_rows, self.writer.reload_row_ids)
        self._run = replace(self._run, last_seq=self._run.last_seq + len(batch.frames))
        if self._listener:
            self._listener.on_shown(self._run.last_seq)

    def _notify(self) -> None:
        """Wake the tasks that wait for a change of the record."""
        if self._change:
            self._change.set_result(None)
            self._change = None

    def _drop_rows(self, batch: _Batch, error: BaseException) -> None:
        """Store the events of the run without rows from now on."""
        _log.error("turn_lost", run_id=self._run.run_id, exc_info=error)
        batch.changes.clear()
        if self.writer.is_stored:
            self.writer.drop()
            if self._listener:
                self._listener.on_rows_dropped()

    async def _stop_storing(self, error: StorageError) -> None:
        """Leave the run to the other servers, or let it go on without the database if there are none."""
        is_alone = await self._stored_runs.is_alone()
        _log.warning("run_not_stored", run_id=self._run.run_id, after=self._run.last_seq, exc_info=error)
        self._failure = error
        if self._listener is None:
            self._state = _State.STOPPED
        elif is_alone:
            self._state = _State.UNSTORED
            self._waiting = _Batch()
            self._stored_runs.note_unstored(self._run)
            self._listener.on_unstored()
        else:
            self._stored_runs.leave(self._run)
            self._lose()

    def _lose(self) -> None:
        self._state = _State.LOST
        if self._listener:
            self._listener.on_lost()


class TurnWriter:
    """Writes one turn into the tables and remembers the ids of its rows.

    If the chat is deleted, or belongs to another user, the writer stores nothing more and `is_stored` becomes False.
    """

    def __init__(self, database: Database, rows: TurnRows) -> None:
        self.rows = rows
        self.is_stored = True
        self._database = database
        self._row_ids: dict[int, int] = {}
        self._chat_created_at: float | None = None

    async def restore(self) -> StoredTurn | None:
        """Load the stored rows in order to continue the turn, and return the turn; None if there are no rows."""
        rows = await self._database.fetch(select(messages).where(self._is_of_turn).order_by(messages.c.id))
        turn = self.rows.turn
        created_at = await self._database.scalar(select(chats.c.created_at).where(chats.c.id == turn.chat_id))
        if not rows or created_at is None:
            return None
        self._chat_created_at = created_at
        self._row_ids = {number: row.id for number, row in enumerate(rows)}
        self.rows.restore(rows, [read_history_call(row) for row in rows if row.role == "tool"])
        [stored] = read_turns(rows)
        return stored

    @property
    def _is_of_turn(self) -> Any:
        turn = self.rows.turn
        return and_(messages.c.chat_id == turn.chat_id, messages.c.run_id == turn.run_id)

    def write(self, connection: Connection, changes: Sequence[RowChange], *, may_be_written: bool = False) -> None:
        """Write the next changes.

        `may_be_written` means that an earlier attempt may have committed them: rows that exist are not added again.
        """
        if not (self.is_stored and changes):
            return
        rows_there = self.reload_row_ids(connection) if may_be_written else 0
        changes = _join_changes(changes)
        new = [one for one in changes if isinstance(one, NewRow)]
        statuses = [one for one in changes if isinstance(one, NewStatus)]
        if isinstance(changes[0], Turn):
            is_there = self._begin(connection, changes[0])
        else:
            # Changed rows need no check: they are deleted with their chat.
            is_there = not (new or statuses) or self._is_chat_there(connection)
        if not is_there:
            self.drop()
            return
        # Neighbours with the same columns are written together.
        for _, rows in groupby((one for one in new if one.number >= rows_there), key=_columns_of):
            self._add_rows(connection, [*rows])
        for _, changed in groupby((one for one in changes if isinstance(one, ChangedRow)), key=_columns_of):
            connection.execute(CHANGE_ROW, [{**one.values, "row": self._row_ids[one.number]} for one in changed])
        for status in statuses:
            self._add_status(connection, status)

    def drop(self) -> None:
        """Store nothing more of the turn."""
        self.is_stored = False
        _log.info("turn_not_kept", chat_id=self.rows.turn.chat_id, run_id=self.rows.turn.run_id)

    def reload_row_ids(self, connection: Connection) -> int:
        """Read the ids of the turn's rows, which are unknown after a lost connection; return the number of rows."""
        ids = connection.scalars(select(messages.c.id).where(self._is_of_turn).order_by(messages.c.id)).all()
        self._row_ids.update(enumerate(ids))
        return len(ids)

    def _is_chat_there(self, connection: Connection) -> bool:
        """Return whether the chat still exists; a chat that was deleted and created again is another chat."""
        created_at = connection.scalar(CHAT_CREATED_AT, {"chat": self.rows.turn.chat_id})
        return created_at is not None and created_at == self._chat_created_at

    def _begin(self, connection: Connection, turn: Turn) -> bool:
        """Store the chat, the response and the results of the client's tools; False if the chat is another user's."""
        now = time.time()
        chat = {"id": turn.chat_id, "user_id": turn.user_id, "user_name": turn.user_name, "user_email": turn.user_email}
        self._chat_created_at = connection.scalar(
            _make_upsert(self._database.insert), {**chat, "created_at": now, "updated_at": now}
        )
        if self._chat_created_at is None:
            return False
        if turn.response is not None:
            row = self._database.insert(responses).values(
                run_id=turn.run_id,
                chat_id=turn.chat_id,
                previous=turn.response.previous,
                input=json.dumps(list(turn.response.new_messages), ensure_ascii=False),
                created_at=now,
            )
            # The row exists if an earlier attempt was committed.
            connection.execute(row.on_conflict_do_nothing())
        for call_id, result in turn.results.items():
            is_open = and_(
                messages.c.chat_id == turn.chat_id, messages.c.tool_call_id == call_id, messages.c.ended_at.is_(None)
            )
            connection.execute(update(messages).where(is_open).values(tool_output=result, ended_at=now))
        return True

    def _add_rows(self, connection: Connection, rows: Sequence[NewRow]) -> None:
        ids = connection.scalars(ADD_ROWS, [row.values for row in rows])
        for row, row_id in zip(rows, ids, strict=True):
            self._row_ids[row.number] = row_id
            if row.values["role"] != "tool":
                self._database.index_words(connection, MESSAGE_WORDS, row_id, message_text(row.values["content"]))

    def _add_status(self, connection: Connection, change: NewStatus) -> None:
        row_id = self._row_ids[change.number]
        status = change.status
        if change.replaces_one:
            of_the_call = select(tool_events.c.id).where(tool_events.c.tool_message_id == row_id)
            first_of_the_last = of_the_call.order_by(tool_events.c.id).offset(MAX_EVENTS // 2).limit(1)
            connection.execute(delete(tool_events).where(tool_events.c.id == first_of_the_last.scalar_subquery()))
        row = {
            "tool_message_id": row_id,
            "status": status.status,
            "message": status.message,
            "progress": status.progress,
            "created_at": status.at,
        }
        connection.execute(ADD_STATUS, row)


def _join_changes(changes: Sequence[RowChange]) -> list[RowChange]:
    """Put the changes of new rows into the rows."""
    new: dict[int, dict[str, Any]] = {}
    joined: list[RowChange] = []
    for change in changes:
        if isinstance(change, ChangedRow) and change.number in new:
            new[change.number] |= change.values
        elif isinstance(change, NewRow):
            new[change.number] = dict(change.values)
            joined.append(NewRow(change.number, new[change.number]))
        else:
            joined.append(change)
    return joined


def _columns_of(change: NewRow | ChangedRow) -> Sequence[str]:
    return (*change.values,)


@cache
def _make_upsert(insert: Callable[[Table], Any]) -> Executable:
    """Return the statement that stores a chat; it returns no row if the chat is another user's."""
    row = insert(chats).values({name: bindparam(name) for name in CHAT_COLUMNS})
    new = row.excluded
    known = {name: func.coalesce(new[name], chats.c[name]) for name in ("user_name", "user_email")}
    changed = {"updated_at": new.updated_at, **known}
    # One statement: if two users create the chat at the same time, only one of them gets a row.
    mine = chats.c.user_id.is_not_distinct_from(new.user_id)
    upsert: Executable = row.on_conflict_do_update(index_elements=["id"], set_=changed, where=mine).returning(
        chats.c.created_at
    )
    return upsert
