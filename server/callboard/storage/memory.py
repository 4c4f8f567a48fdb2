"""A store in memory: for tests, and for a server that is to keep nothing. It lasts as long as the process.

All of it is there while it lasts: replay, search, memories. What differs from a database: English words are found in
their plural, not by their stems, and nothing of it ever fails.
"""

import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, assert_never

from callboard._history import ChatHistory, ChatJournal, CompactResults, StoredTurn, Turn
from callboard._history.journal import MAX_EVENTS, RowWritten, StatusWritten, Step
from callboard._history.records import StoredStatus, message_text
from callboard._history.turns import KeptResponse, join_responses, read_turns
from callboard.storage.meaning import MAX_COMPARED, VectorMemories
from callboard.storage.rows import (
    FRESH_SECONDS_PER_USE,
    MAX_USES,
    ROWS_PER_PAGE,
    SUMMARY_CHARS,
    check_namespace,
    choose_rank,
    compare_call,
    compare_message,
    interrupt_call,
    is_failure,
    read_call,
    read_cursor,
    read_history,
    read_message,
    show_message,
    show_messages,
    unknown_call,
    unknown_chat,
    write_audit_line,
    write_brought,
    write_cursor,
    write_cursor_at,
    write_item,
    write_line,
    write_value,
)
from callboard.storage.store import (
    Audit,
    Chats,
    Memories,
    Overview,
    PastChats,
    Profile,
    Records,
    Responses,
    SelfNotes,
    Usage,
)
from callboard.storage.values import (
    ANY_USER,
    OWN_CHAT_PREFIX,
    RESPONSE_PREFIX,
    SECONDS_A_DAY,
    Attribute,
    AttributeKind,
    AttributeValue,
    AuditEntry,
    AuditFilter,
    CallPage,
    CallSummary,
    ChatFilter,
    ChatPage,
    ChatSummary,
    DayUsage,
    Item,
    KeptResult,
    Line,
    Memory,
    NoteKind,
    OpenRun,
    PastChat,
    PastResponse,
    Record,
    SaidMessage,
    SelfNote,
    StoredCall,
    StoredMessage,
    ToolCallFilter,
    ToolCallPage,
    ToolSummary,
    TurnPage,
    TurnSummary,
)
from callboard.storage.words import count_matches, parse_query
from callboard_protocol import EXTERNAL_ID_PREFIX


@dataclass(slots=True)
class _Row:
    """A message, as the table of messages has it."""

    id: int
    chat_id: str
    run_id: str
    message_id: str | None
    role: str
    created_at: float
    content: str | None = None
    tool_calls: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    arguments: str | None = None
    tool_output: str | None = None
    replay_output: str | None = None
    error_code: str | None = None
    round_index: int | None = None
    sequence_index: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    duration_ms: int | None = None
    provider_details: str | None = None
    place: int | None = None
    agent_id: str | None = None
    parent_call_id: str | None = None
    events: list[StoredStatus] = field(default_factory=list)

    def change(self, columns: Mapping[str, object]) -> None:
        """Give some of its columns other values."""
        for name, value in columns.items():
            setattr(self, name, value)


@dataclass(slots=True)
class _Chat:
    user_id: str | None
    created_at: float
    updated_at: float
    model: str | None = None
    rows: list[_Row] = field(default_factory=list)
    responses: dict[str, KeptResponse] = field(default_factory=dict)

    @property
    def calls(self) -> list[_Row]:
        return [row for row in self.rows if row.role == "tool"]

    @property
    def turns(self) -> list[StoredTurn]:
        return read_turns(row for row in self.rows if row.role != "tool")


@dataclass(slots=True)
class _Memory:
    memory: Memory
    uses: int = 0
    vectors: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _KeptItem:
    user_id: str | None
    chat_id: str | None
    written: str
    created_at: float


@dataclass(slots=True)
class _Used:
    day: int
    calls: int = 0
    tokens: int = 0


class MemoryStore:
    """A store that is gone with the process. See `callboard.storage.Store`."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._chats: dict[str, _Chat] = {}
        self._items: dict[str, _KeptItem] = {}
        self._memories: defaultdict[str, dict[int, _Memory]] = defaultdict(dict)
        self._profiles: defaultdict[str, dict[str, Attribute]] = defaultdict(dict)
        self._notes: defaultdict[tuple[str, str, NoteKind], list[SelfNote]] = defaultdict(list)
        self._audit: list[tuple[AuditEntry, float]] = []
        self._usage: dict[str, _Used] = {}
        self._records: defaultdict[tuple[str, str], dict[str, tuple[str, float]]] = defaultdict(dict)

    async def start(self) -> None:
        """Do nothing: there is nothing to open."""

    async def close(self) -> None:
        """Do nothing: what was kept is there as long as this object."""

    async def check(self) -> None:
        """Do nothing: nothing can fail."""

    def journal(self, turn: Turn, compact_results: CompactResults = "cited") -> ChatJournal:
        """Return the journal that a turn is written in as it happens."""
        return _Journal(self._chats, self._ids, turn, compact_results)

    def chats(self, user_id: object) -> Chats:
        """Return the chats of a user; of every user for `ANY_USER`."""
        return _Chats(self._chats, self._items, user_id)

    def overview(self, user_id: object) -> Overview:
        """Return what a person looks through, of a user; of every user for `ANY_USER`."""
        return _Overview(self._chats, user_id)

    def responses(self, user_id: str | None) -> Responses:
        """Return what a user's clients refer to."""
        return _Responses(self._chats, self._items, user_id)

    def memories(self, user_id: str) -> Memories:
        """Return the memories of a user."""
        return _Memories(self._memories[user_id], self._ids)

    def profile(self, user_id: str) -> Profile:
        """Return the profile of a user."""
        return _Profile(self._profiles[user_id])

    def self_notes(self, agent_id: str, user_id: str) -> SelfNotes:
        """Return what an agent has written about itself for a user."""
        return _SelfNotes(self._notes, agent_id, user_id)

    def past_chats(self, user_id: str, current_chat_id: str | None) -> PastChats:
        """Return a user's chats but for the one that is going on."""
        return _PastChats(self._chats, user_id, current_chat_id)

    def records(self, namespace: str, user_id: str) -> Records:
        """Return what a skill keeps of a user; raises `ValueError` for a namespace that cannot be one."""
        check_namespace(namespace)
        return _Records(self._records[namespace, user_id])

    def audit(self) -> Audit:
        """Return the audit."""
        return _Audit(self._audit, self._ids)

    def usage(self, user_id: str) -> Usage:
        """Return what a user has used of the day."""
        return _Usage(self._usage, user_id)

    async def drop_traces(self) -> None:
        """Do nothing: what is deleted is gone."""

    async def drop_usage(self) -> int:
        """Forget what was used on days that are over; returns of how many users."""
        over = [user_id for user_id, used in self._usage.items() if used.day < time.time() // SECONDS_A_DAY]
        for user_id in over:
            del self._usage[user_id]
        return len(over)

    def run_log(self, server_id: str) -> None:
        """Return no log: runs are gone with the process as everything is."""

    async def close_interrupted_calls(self) -> int:
        """Mark the calls that nobody runs any more, but for a client's own; returns how many."""
        is_open = [
            row
            for row in self._calls()
            if row.ended_at is None and not str(row.tool_call_id).startswith(EXTERNAL_ID_PREFIX)
        ]
        for row in is_open:
            row.change(interrupt_call())
        return len(is_open)

    async def forget_own_chat(self, chat_id: str) -> None:
        """Forget a chat that no client has named, unless a response is kept in it."""
        chat = self._chats.get(chat_id)
        if chat_id.startswith(OWN_CHAT_PREFIX) and chat and not chat.responses:
            del self._chats[chat_id]

    async def read_user(self, user_id: str) -> AsyncIterator[list[Line]]:
        """Return all that is kept of a user, piece by piece."""
        for chat_id, chat in list(self._chats.items()):
            if chat.user_id == user_id:
                known = {"created_at": chat.created_at, "updated_at": chat.updated_at, "model": chat.model}
                yield [{"kind": "chat", **known, "chat_id": chat_id}]
                async for lines in _Chats(self._chats, self._items, user_id).export_pages(chat_id):
                    yield [{"kind": "message", "chat_id": chat_id, **line} for line in lines]
                for run_id, kept in chat.responses.items():
                    about = {"run_id": run_id, "previous": kept.previous, "input": json.loads(kept.input)}
                    yield [{"kind": "response", "chat_id": chat_id, **about}]
        yield [{"kind": "memory", **asdict(one.memory), "uses": one.uses} for one in self._memories[user_id].values()]
        yield [
            {"kind": "attribute", "name": name, "value": one.value, "updated_at": one.updated_at}
            for name, one in self._profiles[user_id].items()
        ]
        yield [
            {"kind": "self_note", "agent_id": agent_id, "text": one.text, "created_at": one.created_at}
            for (agent_id, owner, _), notes in self._notes.items()
            if owner == user_id
            for one in notes
        ]
        yield [
            {"kind": "record", "namespace": namespace, "key": key, "value": json.loads(value), "updated_at": at}
            for (namespace, owner), mine in self._records.items()
            if owner == user_id
            for key, (value, at) in mine.items()
        ]
        async for entries in self.audit().read(AuditFilter(user_id=user_id)):
            yield [write_audit_line(entry) for entry in entries]
        if user_id in self._usage:
            yield [{"kind": "usage", **asdict(self._usage[user_id])}]
        yield [
            {
                "kind": "response_item",
                "id": item_id,
                "chat_id": item.chat_id,
                "item": json.loads(item.written),
                "created_at": item.created_at,
            }
            for item_id, item in self._items.items()
            if item.user_id == user_id
        ]

    async def forget_user(self, user_id: str, key: str | None = None) -> Mapping[str, int]:
        """Forget all that is kept of a user; returns how much of each kind there was."""
        chats = [chat_id for chat_id, chat in self._chats.items() if chat.user_id == user_id]
        for chat_id in chats:
            await _Chats(self._chats, self._items, user_id).delete(chat_id)
        items = [item_id for item_id, item in self._items.items() if item.user_id == user_id]
        for item_id in items:
            del self._items[item_id]
        notes = [mine for (_, owner, _), mine in self._notes.items() if owner == user_id]
        values = [mine for (_, owner), mine in self._records.items() if owner == user_id]
        forgotten = {
            "chat": len(chats),
            "memory": len(self._memories[user_id]),
            "attribute": len(self._profiles[user_id]),
            "self_note": sum(map(len, notes)),
            "record": sum(map(len, values)),
            "response_item": len(items),
            "audited_arguments": await self.audit().forget_user(user_id, key),
        }
        # Emptied, not replaced: a skill may hold one of them.
        self._memories[user_id].clear()
        self._profiles[user_id].clear()
        for written in notes:
            written.clear()
        for kept in values:
            kept.clear()
        return forgotten

    async def drop_chats(self, before: float) -> int:
        """Forget the chats that a client has named and nobody went on with since then; returns how many."""
        old = [
            chat_id
            for chat_id, chat in self._chats.items()
            if not chat_id.startswith(OWN_CHAT_PREFIX)
            and chat.updated_at < before
            and all(row.ended_at is not None for row in chat.calls)
        ]
        for chat_id in old:
            await _Chats(self._chats, self._items, ANY_USER).delete(chat_id)
        return len(old)

    async def drop_uncited(self, before: float) -> int:
        """Keep of results that ended before then only what is replayed; returns how many."""
        old = [row for row in self._calls() if row.replay_output is not None and (row.ended_at or before) < before]
        for row in old:
            row.tool_output = row.replay_output
            row.replay_output = None
        return len(old)

    async def drop_own_chats(self, before: float) -> int:
        """Forget the chats that no client has named and nobody went on with since then; returns how many."""
        old = [
            chat_id
            for chat_id, chat in self._chats.items()
            if chat_id.startswith(OWN_CHAT_PREFIX) and chat.updated_at < before
        ]
        for chat_id in old:
            del self._chats[chat_id]
        return len(old)

    async def drop_response_items(self, before: float) -> int:
        """Forget the responses that were written before then; returns how many items they had."""
        old = [item_id for item_id, item in self._items.items() if item.created_at < before]
        for item_id in old:
            del self._items[item_id]
        return sum(not item_id.startswith(RESPONSE_PREFIX) for item_id in old)

    def _calls(self) -> Iterator[_Row]:
        return (row for chat in self._chats.values() for row in chat.calls)


class _Journal(ChatJournal):
    """The journal of a turn. A chat that is deleted, or is another user's, takes no more of it."""

    def __init__(
        self, chats: dict[str, _Chat], ids: Iterator[int], turn: Turn, compact_results: CompactResults
    ) -> None:
        super().__init__(turn, compact_results)
        self._chats = chats
        self._ids = ids
        self._chat: _Chat | None = None
        self._rows: dict[int, _Row] = {}

    async def write(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Turn):
                self._chat = self._begin_turn(step)
            # A new chat of the same id is another.
            elif self._chat and self._chats.get(self.turn.chat_id) is self._chat:
                self._write_step(self._chat, step)

    def _begin_turn(self, turn: Turn) -> _Chat:
        now = time.time()
        chat = self._chats.setdefault(turn.chat_id, _Chat(turn.user_id, now, now))
        if chat.user_id != turn.user_id:
            raise unknown_chat(turn.chat_id)
        chat.updated_at = now
        if turn.response is not None:
            chat.responses[turn.run_id] = KeptResponse(turn.response.previous, write_brought(turn.response))
        for row in chat.calls:
            result = turn.results.get(row.tool_call_id or "")
            if row.ended_at is None and result is not None:
                row.tool_output = result
                row.ended_at = now
        return chat

    def _write_step(self, chat: _Chat, step: RowWritten | StatusWritten) -> None:
        match step:
            case RowWritten(is_new=True):
                row = self._rows[step.row] = _Row(next(self._ids), **step.columns)
                chat.rows.append(row)
            case RowWritten():
                self._rows[step.row].change(step.columns)
            case StatusWritten():
                events = self._rows[step.row].events
                if step.takes_a_place:
                    del events[MAX_EVENTS // 2]
                events.append(step.status)
            case _:
                assert_never(step)


class _Chats(Chats):
    def __init__(self, chats: dict[str, _Chat], items: dict[str, _KeptItem], user_id: object) -> None:
        self._chats = chats
        self._items = items
        self._user_id = user_id

    async def history(self, chat_id: str) -> ChatHistory:
        if chat_id not in self._chats:
            return ChatHistory()
        chat = self._chat(chat_id)
        return read_history([row for row in chat.rows if row.role == "tool" or row.provider_details], chat.model)

    async def turns(self, chat_id: str) -> list[StoredTurn]:
        chat = self._chats.get(chat_id)
        return chat.turns if chat and self._is_mine(chat) else []

    async def message_pages(self, chat_id: str) -> AsyncIterator[list[StoredMessage]]:
        for rows in _split_pages(self._chat(chat_id).rows):
            yield [read_message(row) for row in rows]

    async def export_pages(self, chat_id: str) -> AsyncIterator[list[Line]]:
        for rows in _split_pages(self._chat(chat_id).rows):
            yield [write_line(read_message(row), row.events) for row in rows]

    async def timeline_pages(self, chat_id: str) -> AsyncIterator[list[StoredCall]]:
        for rows in _split_pages(self._chat(chat_id).calls):
            yield [read_call(row, row.events) for row in rows]

    async def tool_call(self, chat_id: str, tool_call_id: str) -> StoredCall:
        for row in self._chat(chat_id).calls:
            if row.tool_call_id == tool_call_id:
                return read_call(row, row.events)
        raise unknown_call(chat_id, tool_call_id)

    async def tool_calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> ToolCallPage:
        before = None if cursor is None else read_cursor(cursor)
        rows = [
            row
            for chat in self._chats.values()
            if self._is_mine(chat)
            for row in chat.calls
            if (before is None or row.id < before) and all(compare_call(row, wanted))
        ]
        rows.sort(key=lambda row: -row.id)
        return ToolCallPage(tuple(read_call(row, row.events) for row in rows[:limit]), write_cursor(rows, limit))

    async def chat_of_call(self, tool_call_id: str) -> str | None:
        for chat_id, chat in self._chats.items():
            if self._is_mine(chat) and any(row.tool_call_id == tool_call_id for row in chat.calls):
                return chat_id
        return None

    async def chosen_model(self, chat_id: str) -> str | None:
        return self._chat(chat_id).model

    async def choose_model(self, chat_id: str, name: str | None) -> None:
        self._chat(chat_id).model = name

    async def delete(self, chat_id: str) -> None:
        self._chat(chat_id)
        del self._chats[chat_id]
        for item_id in [item_id for item_id, item in self._items.items() if item.chat_id == chat_id]:
            del self._items[item_id]

    async def delete_all(self, begun_before: float) -> int:
        meant = [
            chat_id
            for chat_id, chat in self._chats.items()
            if self._is_mine(chat) and chat.created_at < begun_before and not chat_id.startswith(OWN_CHAT_PREFIX)
        ]
        for chat_id in meant:
            await self.delete(chat_id)
        return len(meant)

    def _is_mine(self, chat: _Chat) -> bool:
        return self._user_id is ANY_USER or chat.user_id == self._user_id

    def _chat(self, chat_id: str) -> _Chat:
        chat = self._chats.get(chat_id)
        if chat is None or not self._is_mine(chat):
            raise unknown_chat(chat_id)
        return chat


class _Overview(Overview):
    def __init__(self, chats: dict[str, _Chat], user_id: object) -> None:
        self._chats = chats
        self._user_id = user_id

    async def find_missing(self, chat_ids: Collection[str]) -> set[str]:
        return set(chat_ids) - {chat_id for chat_id, _ in self._mine()}

    async def chats(self, wanted: ChatFilter, limit: int, cursor: str | None = None) -> ChatPage:
        words = parse_query(wanted.text)
        found = [
            (row_id, chat_id, chat)
            for row_id, (chat_id, chat) in enumerate(sorted(self._mine(), key=lambda one: (one[1].updated_at, one[0])))
            if (not words or any(count_matches(words, message_text(row.content)) for row in chat.rows))
            and (wanted == ChatFilter(wanted.text) or any(all(compare_message(row, wanted)) for row in chat.rows))
        ]
        before = len(self._chats) if cursor is None else read_cursor(cursor) - 1
        found = [one for one in reversed(found) if one[0] < before]
        shown = [_summarise_chat(chat_id, chat) for _, chat_id, chat in found[:limit]]
        # Cursors count from 1.
        return ChatPage(tuple(shown), write_cursor_at(found[limit - 1][0] + 1) if len(found) > limit else None)

    async def turns(self, chat_id: str, limit: int, cursor: str | None = None) -> TurnPage:
        chat = self._chat(chat_id)
        before = None if cursor is None else read_cursor(cursor)
        first_rows = {row.run_id: row for row in reversed(chat.rows)}
        rows = [row for row in first_rows.values() if before is None or row.id < before]
        rows.sort(key=lambda row: -row.id)
        turns = tuple(_summarise_turn(chat, row.run_id) for row in rows[:limit])
        return TurnPage(turns, write_cursor(rows, limit))

    async def turn(self, chat_id: str, run_id: str) -> TurnSummary | None:
        chat = self._chat(chat_id)
        return _summarise_turn(chat, run_id) if any(row.run_id == run_id for row in chat.rows) else None

    async def calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> CallPage:
        before = None if cursor is None else read_cursor(cursor)
        rows = [row for row in self._calls(wanted) if before is None or row.id < before]
        rows.sort(key=lambda row: -row.id)
        return CallPage(tuple(map(self._summarise, rows[:limit])), write_cursor(rows, limit))

    async def calls_of_turn(self, chat_id: str, run_id: str, limit: int, cursor: str | None = None) -> CallPage:
        after = 0 if cursor is None else read_cursor(cursor)
        rows = [row for row in self._chat(chat_id).calls if row.run_id == run_id and row.id > after]
        return CallPage(tuple(map(self._summarise, rows[:limit])), write_cursor(rows, limit))

    async def tools(self, wanted: ToolCallFilter) -> list[ToolSummary]:
        by_tool: defaultdict[str, list[_Row]] = defaultdict(list)
        for row in self._calls(wanted):
            by_tool[row.tool_name or ""].append(row)
        found = [_summarise_tool(name, rows) for name, rows in by_tool.items()]
        return sorted(found, key=lambda tool: (-tool.calls, tool.tool_name))

    async def slowest_calls(self, wanted: ToolCallFilter, limit: int) -> list[CallSummary]:
        rows = sorted(self._calls(wanted), key=lambda row: -(row.duration_ms or 0))
        return [self._summarise(row) for row in rows if row.duration_ms is not None][:limit]

    async def results(self, chat_id: str, tool_call_ids: Collection[str]) -> dict[str, KeptResult]:
        wanted = set(tool_call_ids)
        return {
            str(row.tool_call_id): KeptResult(row.run_id, _count_chars(row.tool_output), _count_chars(_replayed(row)))
            for row in self._chat(chat_id).calls
            if row.tool_call_id in wanted
        }

    async def open_runs(self) -> list[OpenRun]:
        return []

    async def count_calls(self, chat_id: str, before: float) -> int:
        return sum((row.started_at or 0) < before for row in self._chat(chat_id).calls)

    def _calls(self, wanted: ToolCallFilter) -> Iterator[_Row]:
        text = (wanted.text or "").lower()
        return (
            row
            for _, chat in self._mine()
            for row in chat.calls
            if all(compare_call(row, wanted)) and text in f"{row.arguments}\n{row.tool_output}".lower()
        )

    def _summarise(self, row: _Row) -> CallSummary:
        cut = replace(
            row,
            arguments=(row.arguments or "")[:SUMMARY_CHARS],
            tool_output=None if row.tool_output is None else row.tool_output[:SUMMARY_CHARS],
        )
        user_id = self._chats[row.chat_id].user_id
        return CallSummary(read_call(cut, row.events), user_id, row.agent_id, _count_chars(row.tool_output))

    def _mine(self) -> list[tuple[str, _Chat]]:
        return [
            (chat_id, chat)
            for chat_id, chat in self._chats.items()
            if self._user_id is ANY_USER or chat.user_id == self._user_id
        ]

    def _chat(self, chat_id: str) -> _Chat:
        found = dict(self._mine()).get(chat_id)
        if found is None:
            raise unknown_chat(chat_id)
        return found


def _count_chars(text: str | None) -> int:
    return len(text or "")


def _replayed(row: _Row) -> str | None:
    return row.tool_output if row.replay_output is None else row.replay_output


def _summarise_chat(chat_id: str, chat: _Chat) -> ChatSummary:
    asked = [row for row in chat.rows if row.role == "user"]
    errors = sum(all(is_failure(row.error_code)) for row in chat.calls)
    began_with = show_message(asked[0].content) if asked else ""
    return ChatSummary(
        chat_id, chat.user_id, began_with, len(asked), len(chat.calls), errors, chat.created_at, chat.updated_at
    )


def _summarise_turn(chat: _Chat, run_id: str) -> TurnSummary:
    rows = [row for row in chat.rows if row.run_id == run_id]
    calls = [row for row in rows if row.role == "tool"]
    said = {row.role: message_text(row.content) for row in rows if row.role != "tool" and row.tool_calls is None}
    return TurnSummary(
        run_id,
        rows[0].chat_id,
        chat.user_id,
        rows[0].agent_id,
        rows[0].message_id,
        said.get("user", ""),
        said.get("assistant", ""),
        min(row.created_at for row in rows),
        max(row.ended_at or row.created_at for row in rows),
        len(calls),
        sum(all(is_failure(row.error_code)) for row in calls),
    )


def _summarise_tool(name: str, rows: Sequence[_Row]) -> ToolSummary:
    durations = sorted(row.duration_ms for row in rows if row.duration_ms is not None)
    ranks = [durations[choose_rank(len(durations), percent) - 1] if durations else None for percent in (50, 95, 100)]
    return ToolSummary(name, len(rows), sum(all(is_failure(row.error_code)) for row in rows), *ranks)


class _Responses(Responses):
    def __init__(self, chats: dict[str, _Chat], items: dict[str, _KeptItem], user_id: str | None) -> None:
        self._chats = chats
        self._items = items
        self._user_id = user_id

    async def load(self, run_id: str) -> PastResponse | None:
        for chat_id, chat in self._chats.items():
            if run_id in chat.responses and chat.user_id == self._user_id:
                return PastResponse(chat_id, join_responses(run_id, chat.responses, chat.turns))
        return None

    async def keep(self, items: Sequence[Item], chat_id: str | None) -> None:
        for item in items:
            self._items[item["id"]] = _KeptItem(self._user_id, chat_id, write_item(item), time.time())

    async def find(self, ids: Collection[str]) -> dict[str, Item]:
        found = {item_id: self._items[item_id] for item_id in ids if item_id in self._items}
        return {item_id: json.loads(item.written) for item_id, item in found.items() if item.user_id == self._user_id}


class _Memories(VectorMemories):
    def __init__(self, mine: dict[int, _Memory], ids: Iterator[int]) -> None:
        self._mine = mine
        self._ids = ids

    async def newest(self, limit: int) -> list[Memory]:
        return sorted((one.memory for one in self._mine.values()), key=_newest_first)[:limit]

    async def foremost(self, limit: int) -> list[Memory]:
        def rank(one: _Memory) -> tuple[float, int]:
            youth = one.memory.updated_at + min(one.uses, MAX_USES) * FRESH_SECONDS_PER_USE
            return -youth, -one.memory.id

        return [one.memory for one in sorted(self._mine.values(), key=rank)[:limit]]

    async def search(self, query: str, limit: int) -> list[Memory]:
        wanted = parse_query(query)
        found = [(count_matches(wanted, one.memory.text), one.memory) for one in self._mine.values()]
        best = sorted((pair for pair in found if pair[0]), key=lambda pair: (-pair[0], _newest_first(pair[1])))
        return [memory for _, memory in best[:limit]]

    async def without_vector(self, model: str) -> list[Memory]:
        newest = await self.newest(len(self._mine))
        return [memory for memory in newest if model not in self._mine[memory.id].vectors][:MAX_COMPARED]

    async def keep_vectors(self, embedded: Sequence[tuple[Memory, bytes]], model: str) -> None:
        for memory, vector in embedded:
            kept = self._mine.get(memory.id)
            if kept and kept.memory.text == memory.text:
                kept.vectors[model] = vector

    async def with_vectors(self, model: str) -> list[tuple[Memory, bytes]]:
        newest = await self.newest(MAX_COMPARED)
        vectors = ((memory, self._mine[memory.id].vectors.get(model)) for memory in newest)
        return [(memory, vector) for memory, vector in vectors if vector is not None]

    async def count_use(self, memory_ids: Sequence[int]) -> None:
        for memory_id in set(memory_ids) & self._mine.keys():
            self._mine[memory_id].uses += 1

    async def add(self, text: str) -> tuple[Memory, bool]:
        for one in self._mine.values():
            if one.memory.text == text:
                return one.memory, False
        now = time.time()
        memory = Memory(next(self._ids), text, now, now)
        self._mine[memory.id] = _Memory(memory)
        return memory, True

    async def change(self, memory_id: int, text: str) -> bool:
        kept = self._mine.get(memory_id)
        if kept is None:
            return False
        kept.memory = replace(kept.memory, text=text, updated_at=time.time())
        kept.vectors.clear()
        return True

    async def remove(self, memory_id: int) -> bool:
        return self._mine.pop(memory_id, None) is not None


class _Profile(Profile):
    def __init__(self, mine: dict[str, Attribute]) -> None:
        self._mine = mine

    async def attributes(self) -> Mapping[str, Attribute]:
        return dict(sorted(self._mine.items()))

    async def put(self, name: str, kind: AttributeKind, value: AttributeValue) -> None:
        self._mine[name] = Attribute(kind, value, time.time())

    async def remove(self, name: str) -> bool:
        return self._mine.pop(name, None) is not None


class _SelfNotes(SelfNotes):
    def __init__(
        self, notes: defaultdict[tuple[str, str, NoteKind], list[SelfNote]], agent_id: str, user_id: str
    ) -> None:
        self._notes = notes
        self._owner = (agent_id, user_id)

    async def newest(self, kind: NoteKind, limit: int) -> list[SelfNote]:
        return self._notes[*self._owner, kind][::-1][:limit]

    async def description(self, version: int) -> SelfNote | None:
        return next((one for one in self._notes[*self._owner, "description"] if one.version == version), None)

    async def add(self, kind: NoteKind, text: str) -> int:
        mine = self._notes[*self._owner, kind]
        mine.append(SelfNote(len(mine) + 1, text, time.time()))
        return len(mine)


class _PastChats(PastChats):
    def __init__(self, chats: dict[str, _Chat], user_id: str, current_chat_id: str | None) -> None:
        self._chats = chats
        self._user_id = user_id
        self._current_chat_id = current_chat_id

    async def search(self, query: str, limit: int) -> list[SaidMessage]:
        wanted = parse_query(query)
        rows = [row for _, chat in self._mine() for row in chat.rows if row.role != "tool"]
        found = [(count_matches(wanted, message_text(row.content)), row) for row in rows]
        best = sorted((pair for pair in found if pair[0]), key=lambda pair: (-pair[0], -pair[1].id))
        return show_messages((row for _, row in best), wanted, limit)

    async def recent(self, limit: int) -> list[PastChat]:
        shown = []
        for chat_id, chat in sorted(self._mine(), key=lambda pair: (-pair[1].updated_at, pair[0]))[:limit]:
            asked = [row.content for row in chat.rows if row.role == "user"]
            began_with = show_message(asked[0] if asked else None)
            shown.append(PastChat(chat_id, began_with, len(asked), chat.created_at, chat.updated_at))
        return shown

    def _mine(self) -> list[tuple[str, _Chat]]:
        return [
            (chat_id, chat)
            for chat_id, chat in self._chats.items()
            if chat.user_id == self._user_id and chat_id != self._current_chat_id
        ]


class _Audit(Audit):
    def __init__(self, kept: list[tuple[AuditEntry, float]], ids: Iterator[int]) -> None:
        self._kept = kept
        self._ids = ids

    async def write(self, entry: AuditEntry, keep_days: float = 0) -> None:
        now = time.time()
        keep_until = now + keep_days * SECONDS_A_DAY if keep_days else float("inf")
        self._kept.append((replace(entry, at=now, id=next(self._ids)), keep_until))

    async def read(self, wanted: AuditFilter) -> AsyncIterator[list[AuditEntry]]:
        names = ("kind", "user_id", "agent_id", "chat_id", "run_id", "tool_name")
        since = wanted.since or 0
        until = float("inf") if wanted.until is None else wanted.until
        yield [
            entry
            for entry, _ in self._kept
            if since <= (entry.at or 0) < until
            and all(getattr(wanted, name) in (None, getattr(entry, name)) for name in names)
        ]

    async def forget_user(self, user_id: str, key: str | None = None) -> int:
        theirs = [
            (place, entry, keep_until)
            for place, (entry, keep_until) in enumerate(self._kept)
            if entry.user_id == user_id and entry.arguments is not None
        ]
        for place, entry, keep_until in theirs:
            self._kept[place] = replace(entry, arguments=None), keep_until
        if theirs:
            said = AuditEntry("forgotten", user_id, key, at=time.time(), id=next(self._ids))
            self._kept.append((said, max(keep_until for _, _, keep_until in theirs)))
        return len(theirs)

    async def drop(self) -> int:
        now = time.time()
        left = [one for one in self._kept if one[1] > now]
        dropped = len(self._kept) - len(left)
        self._kept[:] = left
        return dropped


class _Usage(Usage):
    def __init__(self, used: dict[str, _Used], user_id: str) -> None:
        self._used = used
        self._user_id = user_id

    async def today(self) -> DayUsage:
        used = self._find()
        return DayUsage(used.calls, used.tokens, SECONDS_A_DAY - time.time() % SECONDS_A_DAY)

    async def take_call(self, limit: int) -> bool:
        used = self._find()
        if used.calls >= limit:
            return False
        used.calls += 1
        return True

    async def add_tokens(self, tokens: int) -> None:
        self._find().tokens += tokens

    def _find(self) -> _Used:
        day = int(time.time() // SECONDS_A_DAY)
        used = self._used.get(self._user_id)
        if used is None or used.day != day:
            used = self._used[self._user_id] = _Used(day)
        return used


class _Records(Records):
    def __init__(self, mine: dict[str, tuple[str, float]]) -> None:
        self._mine = mine

    async def get(self, key: str) -> Record | None:
        return self._record(key) if key in self._mine else None

    async def put(self, key: str, value: Any) -> None:
        self._mine[key] = write_value(key, value), time.time()

    async def put_new(self, key: str, value: Any) -> bool:
        written = write_value(key, value), time.time()
        return self._mine.setdefault(key, written) is written

    async def remove(self, key: str) -> bool:
        return self._mine.pop(key, None) is not None

    async def find(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Record]:
        keys = sorted(key for key in self._mine if key.startswith(prefix) and key > after)
        return [self._record(key) for key in keys[:limit]]

    def _record(self, key: str) -> Record:
        written, updated_at = self._mine[key]
        return Record(key, json.loads(written), updated_at)


def _split_pages(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    return (rows[start : start + ROWS_PER_PAGE] for start in range(0, len(rows), ROWS_PER_PAGE))


def _newest_first(memory: Memory) -> tuple[float, int]:
    return -memory.updated_at, -memory.id
