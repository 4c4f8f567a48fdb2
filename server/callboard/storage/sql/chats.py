"""Chats as others read them, as agents look back at them, and responses, which stand in them.

Reads only what a user may see: for anybody else a chat does not exist.

A response stands in two tables, as the two are asked for apart: `responses` has what its request brought, in a chat and
gone with it; `response_items` what was answered, item by item, also where there is no chat.

A client that names no chat has one all the same as long as something refers to it: an id that
nobody can guess, a chat of its own.
"""

import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, insert, or_, select, update

from callboard._history import ChatHistory, StoredTurn
from callboard._history.records import StoredStatus
from callboard._history.turns import KeptResponse, join_responses, read_turns
from callboard.errors import UnknownChat
from callboard.storage.rows import (
    ROWS_PER_PAGE,
    compare_call,
    read_call,
    read_cursor,
    read_history,
    read_message,
    show_messages,
    show_question,
    unknown_call,
    unknown_chat,
    write_cursor,
    write_item,
    write_line,
)
from callboard.storage.sql.database import ROWS_AT_ONCE, Database
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages, response_items, responses, tool_events
from callboard.storage.values import (
    ANY_USER,
    OWN_CHAT_PREFIX,
    Item,
    Line,
    PastChat,
    PastResponse,
    SaidMessage,
    StoredCall,
    StoredMessage,
    ToolCallFilter,
    ToolCallPage,
)
from callboard.storage.words import parse_query

CALLS_PER_QUERY = 50
"""The calls whose status events are read at one time: a hundred of each."""
MAX_IDS_PER_QUERY = 500
"""The ids in one query: databases limit the parameters of a statement; SQLite's older default is 999."""

MAX_TAKES = 4
"""The rows read for each message that is wanted: an edited or regenerated one stands there once more each time."""

TOOL_CALLS = select(messages).where(messages.c.role == "tool")

T = TypeVar("T")


class Chats:
    """The chats of a store, as one user may see them: for anybody else a chat does not exist (`UnknownChat`)."""

    def __init__(self, database: Database, user_id: object) -> None:
        self._database = database
        self._user_id = user_id

    async def history(self, chat_id: str) -> ChatHistory:
        """Return all tool calls of a chat and its model, in one query; empty for a chat that is not known yet.

        What of it could not be written yet is written first, or else read from memory.

        Raises `UnknownChat` where the chat is another user's: who asks must not learn that it exists.
        """
        await self._database.catch_up(chat_id)
        is_told = or_(messages.c.role == "tool", messages.c.provider_details.is_not(None))
        told = and_(messages.c.chat_id == chats.c.id, is_told)
        query = (
            select(
                chats.c.user_id,
                chats.c.model,
                messages.c.role,
                messages.c.content,
                messages.c.tool_call_id,
                messages.c.tool_name,
                messages.c.arguments,
                messages.c.round_index,
                messages.c.sequence_index,
                messages.c.message_id,
                messages.c.tool_output,
                messages.c.replay_output,
                messages.c.provider_details,
                messages.c.parent_call_id,
            )
            .select_from(chats.outerjoin(messages, told))
            .where(chats.c.id == chat_id)
            .order_by(messages.c.id)
        )
        rows = await self._database.fetch_patiently(query)
        if rows and rows[0].user_id != self._user_id:
            raise unknown_chat(chat_id)
        written = read_history(rows, rows[0].model if rows else None)
        unwritten = self._database.late.calls(chat_id, self._user_id)
        known = {call.tool_call_id: call for call in [*written.calls, *unwritten]}
        return replace(written, calls=tuple(known.values()))

    async def turns(self, chat_id: str) -> list[StoredTurn]:
        """Return the turns of a chat, oldest first; none where there is no such chat of this user."""

        def read(connection: Connection) -> list[StoredTurn]:
            try:
                find_owner(connection, chat_id, self._user_id)
            except UnknownChat:
                return []
            return _load_turns(connection, chat_id)

        return await self._database.read(read)

    def message_pages(self, chat_id: str) -> AsyncIterator[list[StoredMessage]]:
        """Return every message, piece by piece: a long chat at once would hold up everybody."""

        def read(_: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[StoredMessage]:
            return [read_message(row) for row in rows]

        return self._read_pages(chat_id, select(messages), read)

    def export_pages(self, chat_id: str) -> AsyncIterator[list[Line]]:
        """Return every message as a line of an export, those of tools with their `events`, piece by piece."""

        def read(connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[Line]:
            calls = _read_calls(connection, [row for row in rows if row.role == "tool"])
            events = {call.tool_call_id: call.events for call in calls}
            return [write_line(read_message(row), events.get(row.tool_call_id, ())) for row in rows]

        return self._read_pages(chat_id, select(messages), read)

    def timeline_pages(self, chat_id: str) -> AsyncIterator[list[StoredCall]]:
        """Return every call with its status events, piece by piece."""
        return self._read_pages(chat_id, TOOL_CALLS, _read_calls)

    async def _read_pages(
        self,
        chat_id: str,
        query: Select[*tuple[Any, ...]],
        read: Callable[[Connection, Sequence[Row[*tuple[Any, ...]]]], list[T]],
    ) -> AsyncIterator[list[T]]:
        page = query.where(messages.c.chat_id == chat_id).order_by(messages.c.id).limit(ROWS_PER_PAGE)
        last = 0

        def read_page(connection: Connection) -> tuple[Sequence[Row[*tuple[Any, ...]]], list[T]]:
            if not last:
                find_owner(connection, chat_id, self._user_id)
            rows = connection.execute(page.where(messages.c.id > last)).all()
            return rows, read(connection, rows)

        while True:
            rows, found = await self._database.read(read_page)
            # Who reads may take its time: a connection is not kept for it.
            yield found
            if len(rows) < ROWS_PER_PAGE:
                return
            last = rows[-1].id

    async def tool_call(self, chat_id: str, tool_call_id: str) -> StoredCall:
        """Return one call, whole; raises `UnknownChat`, `UnknownToolCall`."""
        query = TOOL_CALLS.where(messages.c.chat_id == chat_id, messages.c.tool_call_id == tool_call_id)

        def read(connection: Connection) -> list[StoredCall]:
            find_owner(connection, chat_id, self._user_id)
            return _read_calls(connection, connection.execute(query).all())

        found = await self._database.read(read)
        if not found:
            raise unknown_call(chat_id, tool_call_id)
        return found[0]

    async def tool_calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> ToolCallPage:
        """Return a page of calls, newest first; raises `RequestError` for a cursor that is none of ours."""
        conditions = compare_call(messages.c, wanted)
        if self._user_id is not ANY_USER:
            conditions.append(chats.c.user_id == self._user_id)
        if cursor is not None:
            conditions.append(messages.c.id < read_cursor(cursor))
        query = TOOL_CALLS.join(chats).where(*conditions).order_by(messages.c.id.desc()).limit(limit + 1)

        def read(connection: Connection) -> ToolCallPage:
            rows = connection.execute(query).all()
            return ToolCallPage(tuple(_read_calls(connection, rows[:limit])), write_cursor(rows, limit))

        return await self._database.read(read)

    async def chat_of_call(self, tool_call_id: str) -> str | None:
        """Return the chat of a call that the client runs, None where this user has no such call."""
        await self._database.catch_up()
        query = (
            select(messages.c.chat_id)
            .join(chats)
            .where(messages.c.tool_call_id == tool_call_id, messages.c.role == "tool", chats.c.user_id == self._user_id)
        )
        chat_id: str | None = await self._database.scalar(query)
        return chat_id

    async def chosen_model(self, chat_id: str) -> str | None:
        """Return the model that was chosen for a chat, None where none was; raises `UnknownChat`."""

        def read(connection: Connection) -> str | None:
            find_owner(connection, chat_id, self._user_id)
            return connection.scalar(select(chats.c.model).where(chats.c.id == chat_id))

        return await self._database.read(read)

    async def choose_model(self, chat_id: str, name: str | None) -> None:
        """Choose the model of a chat's next runs, None for the server's; raises `UnknownChat`."""

        def choose(connection: Connection) -> None:
            find_owner(connection, chat_id, self._user_id)
            connection.execute(update(chats).where(chats.c.id == chat_id).values(model=name))

        await self._database.write(choose)

    async def delete(self, chat_id: str) -> None:
        """Forget a chat with all its calls; raises `UnknownChat`."""
        # What waits to be written of it would bring it back.
        await self._database.late.store(chat_id)

        def forget(connection: Connection) -> None:
            find_owner(connection, chat_id, self._user_id)
            connection.execute(delete(chats).where(chats.c.id == chat_id))
            connection.execute(delete(response_items).where(response_items.c.chat_id == chat_id))

        await self._database.write(forget)

    async def delete_all(self, begun_before: float) -> int:
        """Forget the chats that a client has named and that began before then, in Unix seconds; returns how many."""
        await self._database.late.store()
        is_meant = (chats.c.created_at < begun_before) & ~chats.c.id.startswith(OWN_CHAT_PREFIX, autoescape=True)
        if self._user_id is not ANY_USER:
            is_meant &= chats.c.user_id == self._user_id

        return await delete_chats(self._database, is_meant)

    async def timeline(self, chat_id: str) -> list[StoredCall]:
        """Return every call with its status events, in the order they started; raises `UnknownChat`."""
        return [call async for page in self.timeline_pages(chat_id) for call in page]

    async def messages(self, chat_id: str) -> list[StoredMessage]:
        """Return every message, in the order it was written; raises `UnknownChat`."""
        return [message async for page in self.message_pages(chat_id) for message in page]


class Responses:
    """The things that later requests of a user's OpenAI clients refer to: a response by its run, an item by its id."""

    def __init__(self, database: Database, user_id: str | None) -> None:
        self._database = database
        self._user_id = user_id

    async def load(self, run_id: str) -> PastResponse | None:
        """Return the response of a run, None where there is none of this user's."""
        await self._database.catch_up()
        mine = responses.c.run_id == run_id, chats.c.user_id == self._user_id

        def read(connection: Connection) -> PastResponse | None:
            chat_id: str | None = connection.scalar(select(responses.c.chat_id).join(chats).where(*mine))
            if chat_id is None:
                return None
            kept = select(responses.c.run_id, responses.c.previous, responses.c.input)
            rows = connection.execute(kept.where(responses.c.chat_id == chat_id))
            by_run = {row.run_id: KeptResponse(row.previous, row.input) for row in rows}
            return PastResponse(chat_id, join_responses(run_id, by_run, _load_turns(connection, chat_id)))

        return await self._database.read(read)

    async def keep(self, items: Sequence[Item], chat_id: str | None) -> None:
        """Write the items of one response, each with an `id` of its own; whoever deletes the chat deletes them.

        The response itself may be among them, with an id that begins with `RESPONSE_PREFIX`.
        """
        if not items:
            return
        now = time.time()
        rows = [
            {
                "id": item["id"],
                "user_id": self._user_id,
                "chat_id": chat_id,
                "item": write_item(item),
                "created_at": now,
            }
            for item in items
        ]

        def keep(connection: Connection) -> None:
            connection.execute(insert(response_items), rows)

        await self._database.write(keep)

    async def find(self, ids: Collection[str]) -> dict[str, Item]:
        """Return the items of these ids, by id; one that was never kept, or is another user's, is not among them."""
        wanted = list(dict.fromkeys(ids))
        found = {}
        owned = response_items.c.user_id.is_not_distinct_from(self._user_id)
        for start in range(0, len(wanted), MAX_IDS_PER_QUERY):
            part = wanted[start : start + MAX_IDS_PER_QUERY]
            query = select(response_items.c.id, response_items.c.item).where(response_items.c.id.in_(part), owned)
            found.update({row.id: json.loads(row.item) for row in await self._database.fetch(query)})
        return found


class PastChats:
    """The chats of one user as an agent may look back at them, but for the one that is going on."""

    def __init__(self, database: Database, user_id: str, current_chat_id: str | None) -> None:
        self._database = database
        self._mine = chats.c.user_id == user_id
        if current_chat_id is not None:
            self._mine = and_(self._mine, chats.c.id != current_chat_id)

    async def search(self, query: str, limit: int) -> list[SaidMessage]:
        """Return what was said with any word of the query, best first; what tools did is not searched."""
        wanted = parse_query(query)
        if not wanted:
            return []
        hits = self._database.dialect.hits(MESSAGE_WORDS, wanted)
        found = (
            select(messages.c.chat_id, messages.c.role, messages.c.content, messages.c.created_at)
            .join(hits, hits.c.rowid == messages.c.id)
            .join(chats, chats.c.id == messages.c.chat_id)
            .where(self._mine)
            .order_by(hits.c.rank, messages.c.id.desc())
            .limit(limit * MAX_TAKES)
        )
        return show_messages(await self._database.fetch(found), wanted, limit)

    async def recent(self, limit: int) -> list[PastChat]:
        """Return the last ones, the newest first."""
        began = chats.c.created_at.label("started_at")
        ended = chats.c.updated_at.label("last_at")
        last = (
            select(chats.c.id, began, ended)
            .where(self._mine)
            .order_by(ended.desc(), chats.c.id)
            .limit(limit)
            .subquery()
        )
        asked = (
            select(messages.c.chat_id, func.min(messages.c.id).label("first_id"), func.count().label("turns"))
            .where(messages.c.role == "user", messages.c.chat_id.in_(select(last.c.id)))
            .group_by(messages.c.chat_id)
            .subquery()
        )
        query = (
            select(last, asked.c.turns, messages.c.content)
            .select_from(last)
            .outerjoin(asked, asked.c.chat_id == last.c.id)
            .outerjoin(messages, messages.c.id == asked.c.first_id)
            .order_by(last.c.last_at.desc(), last.c.id)
        )
        return [
            PastChat(row.id, show_question(row.content), row.turns or 0, row.started_at, row.last_at)
            for row in await self._database.fetch(query)
        ]


def find_owner(connection: Connection, chat_id: str, user_id: object) -> str | None:
    """Return whose chat it is; raises `UnknownChat` where that user may not see it."""
    owner = connection.execute(select(chats.c.user_id).where(chats.c.id == chat_id)).one_or_none()
    if owner is None or (user_id is not ANY_USER and owner.user_id != user_id):
        raise unknown_chat(chat_id)
    owner_id: str | None = owner.user_id
    return owner_id


async def delete_chats(database: Database, is_meant: ColumnElement[bool]) -> int:
    """Delete chats with all that is in them, some at a time; return how many."""

    def delete_some(connection: Connection) -> int:
        ids = connection.scalars(select(chats.c.id).where(is_meant).limit(ROWS_AT_ONCE)).all()
        connection.execute(delete(chats).where(chats.c.id.in_(ids)))
        connection.execute(delete(response_items).where(response_items.c.chat_id.in_(ids)))
        return len(ids)

    return await database.write_in_batches(delete_some)


def _load_turns(connection: Connection, chat_id: str) -> list[StoredTurn]:
    """Return the turns of a chat, oldest first."""
    query = (
        select(messages.c.run_id, messages.c.role, messages.c.content, messages.c.tool_calls, messages.c.place)
        .where(messages.c.chat_id == chat_id, messages.c.role != "tool")
        .order_by(messages.c.id)
    )
    rows: Any = connection.execute(query).all()
    return read_turns(rows)


def _read_calls(connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[StoredCall]:
    events = read_statuses(connection, rows)
    return [read_call(row, events[row.id]) for row in rows]


def read_statuses(
    connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]
) -> defaultdict[int, list[StoredStatus]]:
    """Return the status events of calls, by the ids of their rows."""
    events: defaultdict[int, list[StoredStatus]] = defaultdict(list)
    for start in range(0, len(rows), CALLS_PER_QUERY):
        ids = [row.id for row in rows[start : start + CALLS_PER_QUERY]]
        query = select(tool_events).where(tool_events.c.tool_message_id.in_(ids)).order_by(tool_events.c.id)
        for event in connection.execute(query):
            status = StoredStatus(event.status, event.message, event.progress, event.created_at)
            events[event.tool_message_id].append(status)
    return events
