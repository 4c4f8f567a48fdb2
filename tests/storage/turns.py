"""Turns that a test stores step by step."""

from collections.abc import Mapping
from typing import Any

from callboard._history import HistoryCall, RowChange, Turn, TurnRows
from callboard.storage import Store
from callboard.storage.sql.run_record import RunRecord, TurnWriter
from callboard.storage.values import StoredFrame, StoredRun


class StoredSteps:
    """Stores each step of a turn in a transaction of its own, without a run."""

    def __init__(self, store: Store, turn: Turn, writer: TurnWriter | None = None) -> None:
        self._store = store
        self._asked = turn
        self.writer = writer or TurnWriter(store.database, TurnRows(turn))

    async def begin(self) -> bool:
        """Store the question; False if the chat is another user's."""
        asked = self._asked
        return await self._write(self.writer.rows.begin(asked.user_content, asked.results, asked.response))

    async def call_started(self, call: HistoryCall, text_before: str) -> bool:
        return await self._write(self.writer.rows.start_call(call, text_before))

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> bool:
        return await self._write(self.writer.rows.add_status(tool_call_id, status, message, progress))

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int | None) -> bool:
        return await self._write(self.writer.rows.end_call(tool_call_id, output, error_code, duration_ms))

    async def finish(
        self,
        text: str,
        *,
        is_answered: bool,
        details: Mapping[str, Any] | None = None,
        ending: str | None = None,
    ) -> bool:
        changes = self.writer.rows.finish(text, is_answered=is_answered, details=details, ending=ending)
        return await self._write(changes)

    async def _write(self, changes: list[RowChange]) -> bool:
        await self._store.database.write(lambda connection: self.writer.write(connection, changes))
        return self.writer.is_stored


class RecordedSteps(StoredSteps):
    """Stores each step of a turn in the record of a run, with an event."""

    def __init__(self, store: Store, turn: Turn, record: RunRecord) -> None:
        super().__init__(store, turn, record.writer)
        self.record = record

    @classmethod
    async def open(cls, store: Store, turn: Turn, server_id: str = "server") -> "RecordedSteps":
        """Begin the run of a turn."""
        stored_runs = store.stored_runs(server_id)
        run = StoredRun(turn.run_id, "agent", turn.chat_id, turn.message_id, turn.user_id)
        return cls(store, turn, store.record(stored_runs, await stored_runs.begin(run), turn))

    async def finish(self, text: str, *, is_answered: bool, **values: Any) -> bool:
        return await self._append(self.writer.rows.finish(text, is_answered=is_answered, **values), is_last=True)

    async def _write(self, changes: list[RowChange]) -> bool:
        return await self._append(changes)

    async def _append(self, changes: list[RowChange], *, is_last: bool = False) -> bool:
        self.record.append(StoredFrame(b"frame", is_last=is_last), changes)
        await self.record.wait_until_stored()
        return self.writer.is_stored
