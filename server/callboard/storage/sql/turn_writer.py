"""Writes the rows of one turn in the transaction that stores the run's events."""

import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, assert_never

import structlog
from sqlalchemy import Connection, Executable, Table, and_, bindparam, delete, func, insert, select, update

from callboard._history import StoredTurn
from callboard._history.records import message_text
from callboard._history.turn_rows import MAX_EVENTS, ChangedRow, NewRow, NewStatus, RowChange, Turn, TurnRows
from callboard._history.turns import read_turns
from callboard.storage.rows import read_history_call
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages, responses, tool_events

# Made once: SQLAlchemy caches the compiled statement with the object.
CHAT_CREATED_AT = (
    select(chats.c.created_at)
    .where(chats.c.id == bindparam("chat"))
    # On PostgreSQL the chat cannot be deleted before the end of the transaction.
    .with_for_update(read=True, key_share=True)
)
ADD_ROW = insert(messages).returning(messages.c.id)
CHANGE_ROW = update(messages).where(messages.c.id == bindparam("row"))
ADD_STATUS = insert(tool_events)
CHAT_COLUMNS = ("id", "user_id", "user_name", "created_at", "updated_at")

_log = structlog.get_logger(__name__)


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
        # Changed rows need no check: they are deleted with their chat.
        adds_rows = not isinstance(changes[0], Turn) and any(isinstance(one, NewRow | NewStatus) for one in changes)
        is_there = not adds_rows or self._is_chat_there(connection)
        if not (is_there and all(self._write_change(connection, change, rows_there) for change in changes)):
            self.drop()

    def _write_change(self, connection: Connection, change: RowChange, rows_there: int) -> bool:
        """Write one change; return False if the chat is deleted, or another user's."""
        match change:
            case Turn():
                return self._begin(connection, change)
            case NewRow():
                if change.number >= rows_there:
                    self._add_row(connection, change)
            case ChangedRow():
                row = {**change.values, "row": self._row_ids[change.number]}
                return connection.execute(CHANGE_ROW, row).rowcount > 0
            case NewStatus():
                self._add_status(connection, change)
            case _:
                assert_never(change)
        return True

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
        chat = {"id": turn.chat_id, "user_id": turn.user_id, "user_name": turn.user_name}
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

    def _add_row(self, connection: Connection, change: NewRow) -> None:
        row_id = int(connection.execute(ADD_ROW, change.values).scalar_one())
        self._row_ids[change.number] = row_id
        if change.values["role"] != "tool":
            self._database.index_words(connection, MESSAGE_WORDS, row_id, message_text(change.values["content"]))

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


@cache
def _make_upsert(insert: Callable[[Table], Any]) -> Executable:
    """Return the statement that stores a chat; it returns no row if the chat is another user's."""
    row = insert(chats).values({name: bindparam(name) for name in CHAT_COLUMNS})
    new = row.excluded
    changed = {"updated_at": new.updated_at, "user_name": func.coalesce(new.user_name, chats.c.user_name)}
    # One statement: if two users create the chat at the same time, only one of them gets a row.
    mine = chats.c.user_id.is_not_distinct_from(new.user_id)
    upsert: Executable = row.on_conflict_do_update(index_elements=["id"], set_=changed, where=mine).returning(
        chats.c.created_at
    )
    return upsert
