"""Writes one turn as it happens: the user's message, rounds of tool calls, the last text.

The recorder is its only user. `NoJournal` stands in where there is no chat to write to.
"""

import json
import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from callboard.history.compaction import compact_message_tools
from callboard.history.records import ChatMessageTool, ToolResponse
from callboard.history.store import Store, unknown_chat
from callboard.history.tables import chats, messages, tool_events
from callboard.history.word_index import MESSAGE_WORDS
from callboard.history.words import said
from callboard.text import storable


@dataclass(frozen=True, slots=True)
class Turn:
    """Which turn is written: `message_id` is the client's assistant message, `user_content` what was asked."""

    chat_id: str
    run_id: str
    message_id: str | None
    user_id: str | None
    user_content: str | list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class StartedCall:
    """A call as it is about to run; `arguments` is the text as the model wrote it."""

    tool_call_id: str
    tool_name: str
    arguments: str
    round_index: int
    sequence_index: int


class Journal(Protocol):
    """Where a run is written down. Every method raises `StorageError` where it cannot be."""

    async def begin(self) -> None:
        """Write the chat and the user's message."""

    async def call_started(self, call: StartedCall, text_before: str) -> None:
        """Write the call, before it runs; `text_before` is what was said since the last round."""

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Write one status event."""

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int) -> None:
        """Fill in the call's whole result, or what went wrong."""

    async def finish(self, text: str) -> None:
        """Write the turn's last text, and what of its results will be replayed."""


class NoJournal:
    """For runs without a saved chat, and for background tasks: nothing is kept."""

    async def begin(self) -> None:
        """Nothing to write."""

    async def call_started(self, call: StartedCall, text_before: str) -> None:
        """Nothing to write."""

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Nothing to write."""

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int) -> None:
        """Nothing to write."""

    async def finish(self, text: str) -> None:
        """Nothing to write."""


class ChatJournal:
    """Writes a turn to the database, one short transaction an event."""

    def __init__(self, store: Store, turn: Turn) -> None:
        self._store = store
        self._turn = turn
        self._rows: dict[str, int] = {}
        self._records: dict[str, ChatMessageTool] = {}
        self._texts: list[str] = []
        self._round = -1
        self._assistant_row = 0
        self._tool_calls: list[dict[str, Any]] = []

    def ask(self, content: str | list[dict[str, Any]] | None) -> None:
        """Take what was asked in the place of `Turn.user_content`: once its files are read, before `begin`."""
        self._turn = replace(self._turn, user_content=content)

    async def begin(self) -> None:
        """Write the chat and the user's message; raises `UnknownChat` where the chat is another user's."""
        turn, now = self._turn, time.time()
        async with self._store.writing() as connection:
            touched = await connection.execute(update(chats).where(chats.c.id == turn.chat_id).values(updated_at=now))
            if touched.rowcount:
                owner = await connection.scalar(select(chats.c.user_id).where(chats.c.id == turn.chat_id))
                if owner != turn.user_id:
                    raise unknown_chat(turn.chat_id)
            else:
                await connection.execute(
                    insert(chats).values(id=turn.chat_id, user_id=turn.user_id, created_at=now, updated_at=now)
                )
            if turn.user_content is not None:
                await self._write_said(connection, "user", _as_text(turn.user_content))

    async def call_started(self, call: StartedCall, text_before: str) -> None:
        """Write the call's row; the first call of a round writes its assistant message too."""
        entry = {
            "id": call.tool_call_id,
            "type": "function",
            "function": {"name": call.tool_name, "arguments": call.arguments},
        }
        async with self._store.writing() as connection:
            if call.round_index != self._round:
                self._round, self._tool_calls = call.round_index, [entry]
                self._assistant_row = await self._write_said(
                    connection,
                    "assistant",
                    text_before or None,
                    tool_calls=json.dumps(self._tool_calls, ensure_ascii=False),
                    round_index=call.round_index,
                )
            else:
                self._tool_calls.append(entry)
                await connection.execute(
                    update(messages)
                    .where(messages.c.id == self._assistant_row)
                    .values(tool_calls=json.dumps(self._tool_calls, ensure_ascii=False))
                )
            result = await connection.execute(
                self._row(
                    "tool",
                    tool_call_id=call.tool_call_id,
                    tool_name=call.tool_name[:255],
                    arguments=call.arguments,
                    round_index=call.round_index,
                    sequence_index=call.sequence_index,
                    started_at=time.time(),
                )
            )
            self._rows[call.tool_call_id] = _inserted(result)
        self._texts.append(text_before)
        self._records[call.tool_call_id] = ChatMessageTool(call.tool_call_id, call.tool_name, call.arguments)

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Write one status event."""
        async with self._store.writing() as connection:
            await connection.execute(
                insert(tool_events).values(
                    tool_message_id=self._rows[tool_call_id],
                    status=status[:64],
                    message=message,
                    progress=progress,
                    created_at=time.time(),
                )
            )

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int) -> None:
        """Fill in the call's whole result, or what went wrong."""
        async with self._store.writing() as connection:
            await connection.execute(
                update(messages)
                .where(messages.c.id == self._rows[tool_call_id])
                .values(tool_output=output, error_code=error_code, ended_at=time.time(), duration_ms=duration_ms)
            )
        self._records[tool_call_id] = replace(self._records[tool_call_id], response=ToolResponse(output))

    async def finish(self, text: str) -> None:
        """Write the turn's last text, and the compacted form of each result of which the turn cites but a part."""
        records = list(self._records.values())
        # Text before and between the rounds cites as well as the last.
        compacted = compact_message_tools(records, "".join([*self._texts, text]))
        leaner = [after for before, after in zip(records, compacted, strict=True) if after != before]
        if not (text or leaner):
            return
        async with self._store.writing() as connection:
            for record in leaner:
                row = messages.c.id == self._rows[record.external_tool_call_id]
                output = record.response.content if record.response else None
                await connection.execute(update(messages).where(row).values(replay_output=output))
            if text:
                await self._write_said(connection, "assistant", text)

    async def _write_said(self, connection: AsyncConnection, role: str, content: str | None, **values: object) -> int:
        row_id = _inserted(await connection.execute(self._row(role, content=content, **values)))
        await MESSAGE_WORDS.add(connection, row_id, said(content))
        return row_id

    def _row(self, role: str, **values: object) -> Any:
        return insert(messages).values(
            chat_id=self._turn.chat_id,
            run_id=self._turn.run_id,
            message_id=self._turn.message_id,
            role=role,
            created_at=time.time(),
            **values,
        )


def _inserted(result: Any) -> int:
    return int(result.inserted_primary_key[0])


def _as_text(content: str | list[dict[str, Any]]) -> str:
    return storable(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
