"""The journal that writes one turn as it happens, in one short transaction a step."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import structlog
from sqlalchemy import Connection, and_, bindparam, delete, insert, select, update

from callboard._history import ChatJournal, CompactResults, Turn
from callboard._history.journal import MAX_EVENTS, RowWritten, StatusWritten, Step
from callboard._history.records import message_text
from callboard.errors import RunLost, StorageError, UnknownChat
from callboard.storage.rows import read_history_call, unknown_chat, write_brought
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages, responses, runs, tool_events
from callboard.storage.sql.unwritten import SECONDS_BETWEEN_TRIES

# Made once: what SQLAlchemy works out of a statement, it keeps with it.
CHAT_BEGAN = (
    select(chats.c.created_at)
    .where(chats.c.id == bindparam("chat"))
    # On PostgreSQL it then stays until the end of the transaction.
    .with_for_update(read=True, key_share=True)
)
OWNER = select(runs.c.epoch).where(runs.c.id == bindparam("run")).with_for_update(read=True)
ADD_ROW = insert(messages).returning(messages.c.id)
CHANGE_ROW = update(messages).where(messages.c.id == bindparam("row"))
ADD_STATUS = insert(tool_events)

_log = structlog.get_logger(__name__)


class SqlJournal(ChatJournal):
    """See `callboard._history.ChatJournal`.

    A step can be written again, since the transaction that it was part of was taken back: after trouble
    all that are missing are written at once. Where it is not known whether a transaction was committed,
    what of it is there is left as it is. What is missing at the end is handed to the database's
    `UnwrittenTurns`.

    A chat that is deleted in the meantime, or that another user began at the same moment, takes
    nothing more of the turn.
    """

    def __init__(self, database: Database, turn: Turn, compact_results: CompactResults) -> None:
        super().__init__(turn, compact_results)
        self._database = database
        # The steps that are not known to be written. The first of them, `_tried`, may be.
        self._steps: list[Step] = []
        self._tried = 0
        self._has_begun = False
        self._is_kept = True
        self._next_try = 0.0
        self._chat_began = 0.0
        self._row_ids: dict[int, int] = {}

    async def restore(self) -> bool:
        """Go on with the turn as another server has left it; return whether there is anything of it."""
        of_turn = and_(messages.c.chat_id == self.turn.chat_id, messages.c.run_id == self.turn.run_id)
        rows = await self._database.fetch(select(messages).where(of_turn).order_by(messages.c.id))
        began = await self._database.scalar(select(chats.c.created_at).where(chats.c.id == self.turn.chat_id))
        if not rows or began is None:
            return False
        self._has_begun = True
        self._chat_began = began
        self._row_count = len(rows)
        for number, row in enumerate(rows):
            self._row_ids[number] = row.id
            if row.role == "tool":
                self._calls[row.tool_call_id] = read_history_call(row)
                self._rows_of_calls[row.tool_call_id] = number
            elif row.tool_calls:
                self._texts.append(row.content or "")
                self._round_row = number
                self._round_index = row.round_index
                self._round_calls = json.loads(row.tool_calls)
        return True

    async def begin(self) -> None:
        """Write the chat and the user's message, where they are not there already."""
        if not self._has_begun:
            await super().begin()

    async def write(self, steps: Sequence[Step]) -> None:
        """Write the steps that come next, and those before them that could not be written."""
        self._steps += steps
        if time.monotonic() < self._next_try:
            raise StorageError("what could not be written a moment ago is not tried again yet")
        if self._is_kept and self._steps:
            try:
                # Turns of this chat that ended earlier come before this one.
                await self._database.unwritten.write(self.turn.chat_id)
            except StorageError:
                self._next_try = time.monotonic() + SECONDS_BETWEEN_TRIES
                raise
        await self._write_steps()

    async def finish(
        self,
        text: str,
        *,
        is_answered: bool,
        details: Mapping[str, Any] | None = None,
        ending: str | None = None,
    ) -> None:
        """Write the turn's end, at once whatever failed a moment ago; what cannot be written is left to wait."""
        self._next_try = 0.0
        try:
            await super().finish(text, is_answered=is_answered, details=details, ending=ending)
        except StorageError:
            if self._is_kept:
                self._database.unwritten.keep(self, self._write_rest)
            raise
        self._steps.clear()

    async def catch_up(self) -> None:
        """Write what could not be written before, at once whatever failed a moment ago."""
        self._next_try = 0.0
        await super().catch_up()

    async def _write_rest(self) -> None:
        """Write what could not be written before; nothing where the chat or the run takes no more of the turn."""
        try:
            await self._write_steps()
        except UnknownChat:
            return
        except RunLost:
            # Kept as steps: the run itself, if it still writes, is to hear of it too.
            _log.info("turn_not_kept", chat_id=self.turn.chat_id, run_id=self.turn.run_id)
        else:
            self._steps.clear()

    async def _write_steps(self) -> None:
        if self._is_kept and self._steps:
            try:
                written = await self._database.write(self._write_missing)
            except UnknownChat:
                # Deleted, or somebody else's: nothing failed, and there is nothing left to write to.
                self._is_kept = False
                self._steps.clear()
                _log.info("turn_not_kept", chat_id=self.turn.chat_id, run_id=self.turn.run_id)
                if not self._has_begun:
                    raise
            except StorageError:
                self._next_try = time.monotonic() + SECONDS_BETWEEN_TRIES
                raise
            else:
                del self._steps[:written]
                self._tried = 0
                self._has_begun = True
                self._next_try = 0.0
        if not self._is_kept:
            self._steps.clear()

    def _write_missing(self, connection: Connection) -> int:
        """Return how many steps are written then."""
        steps = tuple(self._steps)
        self._check_owner(connection)
        if self._has_begun:
            self._check_chat(connection)
        rows_there = self._find_rows(connection) if self._tried else 0
        for step in steps:
            if not self._is_there(connection, step, rows_there):
                self._write_step(connection, step)
        self._tried = len(steps)
        return self._tried

    def _find_rows(self, connection: Connection) -> int:
        """Return how many rows of the turn are there, where that is not known."""
        of_turn = and_(messages.c.chat_id == self.turn.chat_id, messages.c.run_id == self.turn.run_id)
        ids = connection.scalars(select(messages.c.id).where(of_turn).order_by(messages.c.id)).all()
        self._row_ids.update(enumerate(ids))
        return len(ids)

    def _is_there(self, connection: Connection, step: Step, rows_there: int) -> bool:
        """Return whether a step that was tried before is written, and must not be a second time."""
        match step:
            case RowWritten(is_new=True):
                return step.row < rows_there
            case StatusWritten(row=row, status=status) if row < rows_there:
                is_same = and_(
                    tool_events.c.tool_message_id == self._row_ids[row], tool_events.c.created_at == status.at
                )
                return connection.scalar(select(tool_events.c.id).where(is_same).limit(1)) is not None
            case _:
                return False

    def _check_owner(self, connection: Connection) -> None:
        """Raise `RunLost` where another server owns the run by now; one that is forgotten ended a while ago."""
        if self.turn.epoch and connection.scalar(OWNER, {"run": self.turn.run_id}) not in (None, self.turn.epoch):
            raise RunLost(f"run {self.turn.run_id!r} is another server's by now")

    def _check_chat(self, connection: Connection) -> None:
        """Raise `UnknownChat` where the chat is gone; a new one of the same id is another."""
        if connection.scalar(CHAT_BEGAN, {"chat": self.turn.chat_id}) != self._chat_began:
            raise unknown_chat(self.turn.chat_id)

    def _write_step(self, connection: Connection, step: Step) -> None:
        match step:
            case Turn():
                self._begin_turn(connection, step)
            case RowWritten(is_new=True):
                row = step.columns
                row_id = int(connection.execute(ADD_ROW, dict(row)).scalar_one())
                self._row_ids[step.row] = row_id
                if row["role"] != "tool":
                    self._database.dialect.index(connection, MESSAGE_WORDS, row_id, message_text(row["content"]))
            case RowWritten():
                connection.execute(CHANGE_ROW, {**step.columns, "row": self._row_ids[step.row]})
            case StatusWritten():
                self._write_status(connection, step)
            case _:
                assert_never(step)

    def _begin_turn(self, connection: Connection, turn: Turn) -> None:
        now = time.time()
        row = self._database.dialect.insert(chats).values(
            id=turn.chat_id, user_id=turn.user_id, user_name=turn.user_name, created_at=now, updated_at=now
        )
        changed = {"updated_at": now} if turn.user_name is None else {"updated_at": now, "user_name": turn.user_name}
        # One statement: of two users who begin a chat at the same moment, one finds the other's.
        mine = chats.c.user_id.is_not_distinct_from(turn.user_id)
        begin = row.on_conflict_do_update(index_elements=["id"], set_=changed, where=mine)
        began = connection.scalar(begin.returning(chats.c.created_at))
        if began is None:
            raise unknown_chat(turn.chat_id)
        self._chat_began = began
        if turn.response is not None:
            if self._tried:
                # It may be there already.
                mine = and_(responses.c.run_id == turn.run_id, responses.c.chat_id == turn.chat_id)
                connection.execute(delete(responses).where(mine))
            connection.execute(
                insert(responses).values(
                    run_id=turn.run_id,
                    chat_id=turn.chat_id,
                    previous=turn.response.previous,
                    input=write_brought(turn.response),
                    created_at=now,
                )
            )
        for call_id, result in turn.results.items():
            is_waited_for = and_(
                messages.c.chat_id == turn.chat_id,
                messages.c.tool_call_id == call_id,
                messages.c.ended_at.is_(None),
            )
            connection.execute(update(messages).where(is_waited_for).values(tool_output=result, ended_at=now))

    def _write_status(self, connection: Connection, step: StatusWritten) -> None:
        row_id = self._row_ids[step.row]
        status = step.status
        if step.takes_a_place:
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
