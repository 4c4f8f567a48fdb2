"""Reads and deletes chats, searches past chats, and stores responses of OpenAI's Responses API.

A user can read only their own chats; another user's chat raises the same error as a chat that does not exist.

A response is in two tables: `responses` has the input of its request and is deleted with its chat; `response_items` has
the output items, and exists also without a chat. For a client without chat ids the server makes an unguessable chat id
(`OWN_CHAT_PREFIX`), and deletes the chat when no response refers to it any more.
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
"""The calls in one query for status events; each call has up to a hundred."""
MAX_IDS_PER_QUERY = 500
"""The ids in one query: databases limit the parameters of a statement, older versions of SQLite to 999."""

ROWS_PER_HIT = 4
"""The rows that a search reads for each message to return, because edits and regenerations store a message again."""

TOOL_CALLS = select(messages).where(messages.c.role == "tool")

T = TypeVar("T")


class Chats:
    """The chats of one user, or of all users for `ANY_USER`; other chats raise `UnknownChat`."""

    def __init__(self, database: Database, user_id: object) -> None:
        self._database = database
        self._user_id = user_id

    async def history(self, chat_id: str) -> ChatHistory:
        """Return the tool calls and the chosen model of a chat, empty for a chat that does not exist yet.

        Late runs of the chat are stored first; if that fails, their calls are read from memory. Raises `UnknownChat` if
        the chat is another user's.
        """
        await self._database.catch_up(chat_id)
        is_replayed = or_(messages.c.role == "tool", messages.c.provider_details.is_not(None))
        replayed = and_(messages.c.chat_id == chats.c.id, is_replayed)
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
            .select_from(chats.outerjoin(messages, replayed))
            .where(chats.c.id == chat_id)
            .order_by(messages.c.id)
        )
        rows = await self._database.fetch_patiently(query)
        if rows and rows[0].user_id != self._user_id:
            raise unknown_chat(chat_id)
        stored = read_history(rows, rows[0].model if rows else None)
        late_calls = self._database.late.calls(chat_id, self._user_id)
        calls = {call.tool_call_id: call for call in [*stored.calls, *late_calls]}
        return replace(stored, calls=tuple(calls.values()))

    async def turns(self, chat_id: str) -> list[StoredTurn]:
        """Return the turns of a chat, oldest first; none if the user has no such chat."""

        def read(connection: Connection) -> list[StoredTurn]:
            try:
                find_owner(connection, chat_id, self._user_id)
            except UnknownChat:
                return []
            return _load_turns(connection, chat_id)

        return await self._database.read(read)

    def message_pages(self, chat_id: str) -> AsyncIterator[list[StoredMessage]]:
        """Yield the messages of a chat page by page, so that a long chat does not block other requests."""

        def read(_: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[StoredMessage]:
            return [read_message(row) for row in rows]

        return self._read_pages(chat_id, select(messages), read)

    def export_pages(self, chat_id: str) -> AsyncIterator[list[Line]]:
        """Yield the messages as lines of an export, tool calls with their `events`, page by page."""

        def read(connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[Line]:
            calls = _read_calls(connection, [row for row in rows if row.role == "tool"])
            events = {call.tool_call_id: call.events for call in calls}
            return [write_line(read_message(row), events.get(row.tool_call_id, ())) for row in rows]

        return self._read_pages(chat_id, select(messages), read)

    def timeline_pages(self, chat_id: str) -> AsyncIterator[list[StoredCall]]:
        """Yield the calls with their status events, page by page."""
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
            # Outside of the read: the caller may be slow, and must not hold a connection.
            yield found
            if len(rows) < ROWS_PER_PAGE:
                return
            last = rows[-1].id

    async def tool_call(self, chat_id: str, tool_call_id: str) -> StoredCall:
        """Return one call with its full result; raises `UnknownChat`, `UnknownToolCall`."""
        query = TOOL_CALLS.where(messages.c.chat_id == chat_id, messages.c.tool_call_id == tool_call_id)

        def read(connection: Connection) -> list[StoredCall]:
            find_owner(connection, chat_id, self._user_id)
            return _read_calls(connection, connection.execute(query).all())

        found = await self._database.read(read)
        if not found:
            raise unknown_call(chat_id, tool_call_id)
        return found[0]

    async def tool_calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> ToolCallPage:
        """Return a page of calls, newest first; raises `RequestError` for an invalid cursor."""
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
        """Return the chat id of a call, None if this user has no such call."""
        await self._database.catch_up()
        query = (
            select(messages.c.chat_id)
            .join(chats)
            .where(messages.c.tool_call_id == tool_call_id, messages.c.role == "tool", chats.c.user_id == self._user_id)
        )
        chat_id: str | None = await self._database.scalar(query)
        return chat_id

    async def chosen_model(self, chat_id: str) -> str | None:
        """Return the model that was chosen for a chat, None for the server's default; raises `UnknownChat`."""

        def read(connection: Connection) -> str | None:
            find_owner(connection, chat_id, self._user_id)
            return connection.scalar(select(chats.c.model).where(chats.c.id == chat_id))

        return await self._database.read(read)

    async def choose_model(self, chat_id: str, name: str | None) -> None:
        """Set the model of a chat's next runs, None for the server's default; raises `UnknownChat`."""

        def choose(connection: Connection) -> None:
            find_owner(connection, chat_id, self._user_id)
            connection.execute(update(chats).where(chats.c.id == chat_id).values(model=name))

        await self._database.write(choose)

    async def delete(self, chat_id: str) -> None:
        """Delete a chat with its messages and calls; raises `UnknownChat`."""
        # A late run of the chat would be stored after the deletion.
        await self._database.late.store(chat_id)

        def delete_chat(connection: Connection) -> None:
            find_owner(connection, chat_id, self._user_id)
            connection.execute(delete(chats).where(chats.c.id == chat_id))
            connection.execute(delete(response_items).where(response_items.c.chat_id == chat_id))

        await self._database.write(delete_chat)

    async def delete_all(self, begun_before: float) -> int:
        """Delete the chats with a client's id that began before a time, in Unix seconds; return their number."""
        await self._database.late.store()
        condition = (chats.c.created_at < begun_before) & ~chats.c.id.startswith(OWN_CHAT_PREFIX, autoescape=True)
        if self._user_id is not ANY_USER:
            condition &= chats.c.user_id == self._user_id
        return await delete_chats(self._database, condition)

    async def timeline(self, chat_id: str) -> list[StoredCall]:
        """Return every call with its status events, in the order they started; raises `UnknownChat`."""
        return [call async for page in self.timeline_pages(chat_id) for call in page]

    async def messages(self, chat_id: str) -> list[StoredMessage]:
        """Return every message, in the order it was written; raises `UnknownChat`."""
        return [message async for page in self.message_pages(chat_id) for message in page]


class Responses:
    """Responses, by run id, and their items, by item id; later requests of a user's OpenAI clients refer to them."""

    def __init__(self, database: Database, user_id: str | None) -> None:
        self._database = database
        self._user_id = user_id

    async def load(self, run_id: str) -> PastResponse | None:
        """Return the response of a run, None if this user has none."""
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
        """Store the items of a response by their `id`; they are deleted with the chat.

        The response itself may be one of them, with an id that begins with `RESPONSE_PREFIX`.
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
        """Return the existing items of this user among `ids`, by id."""
        wanted = list(dict.fromkeys(ids))
        found = {}
        owned = response_items.c.user_id.is_not_distinct_from(self._user_id)
        for start in range(0, len(wanted), MAX_IDS_PER_QUERY):
            part = wanted[start : start + MAX_IDS_PER_QUERY]
            query = select(response_items.c.id, response_items.c.item).where(response_items.c.id.in_(part), owned)
            found.update({row.id: json.loads(row.item) for row in await self._database.fetch(query)})
        return found


class PastChats:
    """The chats of one user for an agent's search, without the current chat."""

    def __init__(self, database: Database, user_id: str, current_chat_id: str | None) -> None:
        self._database = database
        self._mine = chats.c.user_id == user_id
        if current_chat_id is not None:
            self._mine = and_(self._mine, chats.c.id != current_chat_id)

    async def search(self, query: str, limit: int) -> list[SaidMessage]:
        """Return the messages with any word of the query, best first; calls and results are not searched."""
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
            .limit(limit * ROWS_PER_HIT)
        )
        return show_messages(await self._database.fetch(found), wanted, limit)

    async def recent(self, limit: int) -> list[PastChat]:
        """Return the last updated chats, newest first."""
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
    """Return the owner of a chat; raises `UnknownChat` if `user_id` may not read it."""
    owner = connection.execute(select(chats.c.user_id).where(chats.c.id == chat_id)).one_or_none()
    if owner is None or (user_id is not ANY_USER and owner.user_id != user_id):
        raise unknown_chat(chat_id)
    owner_id: str | None = owner.user_id
    return owner_id


async def delete_chats(database: Database, condition: ColumnElement[bool]) -> int:
    """Delete the chats that meet a condition, with their contents, in batches; return their number."""

    def delete_some(connection: Connection) -> int:
        ids = connection.scalars(select(chats.c.id).where(condition).limit(ROWS_AT_ONCE)).all()
        connection.execute(delete(chats).where(chats.c.id.in_(ids)))
        connection.execute(delete(response_items).where(response_items.c.chat_id.in_(ids)))
        return len(ids)

    return await database.write_in_batches(delete_some)


def _load_turns(connection: Connection, chat_id: str) -> list[StoredTurn]:
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
    """Return the status events of calls, by row id."""
    events: defaultdict[int, list[StoredStatus]] = defaultdict(list)
    for start in range(0, len(rows), CALLS_PER_QUERY):
        ids = [row.id for row in rows[start : start + CALLS_PER_QUERY]]
        query = select(tool_events).where(tool_events.c.tool_message_id.in_(ids)).order_by(tool_events.c.id)
        for event in connection.execute(query):
            status = StoredStatus(event.status, event.message, event.progress, event.created_at)
            events[event.tool_message_id].append(status)
    return events
