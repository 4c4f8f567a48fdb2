"""Lists and summaries of chats, turns and calls, for the inspector.

Text searches and tool statistics examine a limited number of the newest rows, so that their cost does not grow with the
database.
"""

import base64
import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, exists, func, or_, select, tuple_
from sqlalchemy.sql.elements import ColumnElement

from callboard.errors import RequestError
from callboard.storage.sql.queries import (
    INVALID_CURSOR,
    IS_CALL,
    UserChats,
    is_owned_by,
    match_call,
    match_message,
    read_cursor,
    read_page,
    write_cursor,
)
from callboard.storage.sql.summaries import (
    IS_QUESTION,
    SUMMARIES,
    load_turns,
    read_failures,
    summarise_calls,
    summarise_chats,
    summarise_tools,
)
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages, runs
from callboard.storage.summaries import (
    CallPage,
    CallSummary,
    ChatFilter,
    ChatPage,
    ChatSummary,
    OpenRun,
    ResultSize,
    ToolSummary,
    TurnPage,
    TurnSummary,
)
from callboard.storage.values import ToolCallFilter
from callboard.storage.words import parse_query
from callboard.text import storable

WINDOW_ROWS = 100_000
"""The message rows that a search examines for one page, and that tool statistics are computed from."""
WINDOW_CHATS = 2_000
"""The chats that a filter examines for one page."""
MAX_OPEN_RUNS = 300


class Overview(UserChats):
    """Lists of the chats, turns and calls of one user, or of all users for `ANY_USER`.

    The cost of a page does not depend on the number of pages before or after it. Methods with a `cursor` raise
    `RequestError` if it is invalid.
    """

    async def chats(self, wanted: ChatFilter, limit: int, cursor: str | None = None) -> ChatPage:
        """Return a page of chats, those with the newest answers first."""
        query = select(chats).where(self._is_mine)
        if words := parse_query(wanted.text):
            hits = self._database.find_words(MESSAGE_WORDS, words)
            said = select(messages.c.chat_id).join(hits, hits.c.rowid == messages.c.id)
            query = query.where(chats.c.id.in_(said))
        # Exclude chats by their own times, so that their messages need not be examined.
        if wanted.since is not None:
            query = query.where(chats.c.updated_at >= wanted.since)
        if wanted.until is not None:
            query = query.where(chats.c.created_at < wanted.until)
        if cursor is not None:
            query = query.where(tuple_(chats.c.updated_at, chats.c.id) < tuple_(*_read_chat_cursor(cursor)))

        query = query.order_by(chats.c.updated_at.desc(), chats.c.id.desc())
        fitting = query
        if conditions := match_message(wanted):
            window = query.limit(WINDOW_CHATS).subquery()
            fits = exists().where(messages.c.chat_id == window.c.id, *conditions)
            fitting = select(window).where(fits).order_by(window.c.updated_at.desc(), window.c.id.desc())

        def read(connection: Connection) -> ChatPage:
            rows = connection.execute(fitting.limit(limit + 1)).all()
            page = rows[:limit]
            found = summarise_chats(connection, page)
            last = page[-1] if len(rows) > limit else None
            if last is None and conditions:
                last = connection.execute(query.limit(1).offset(WINDOW_CHATS - 1)).first()
            return ChatPage(found, _write_chat_cursor(last) if last else None)

        return await self._database.read(read)

    async def chat(self, chat_id: str) -> ChatSummary:
        """Return one chat; raises `UnknownChat`."""
        query = select(chats).where(chats.c.id == chat_id)
        [found] = await self._read_chat(
            chat_id, lambda connection: summarise_chats(connection, connection.execute(query).all())
        )
        return found

    async def turns(self, chat_id: str, limit: int, cursor: str | None = None) -> TurnPage:
        """Return the turns of a chat, newest first; raises `UnknownChat`."""
        of_chat = messages.c.chat_id == chat_id
        begun = (
            select(messages.c.run_id, func.min(messages.c.id).label("id"))
            .where(of_chat)
            .group_by(messages.c.run_id)
            .subquery()
        )

        def read(connection: Connection) -> TurnPage:
            rows, next_cursor = read_page(connection, select(begun), begun.c.id, limit, cursor)
            ids = [row.run_id for row in rows]
            turns = load_turns(connection, of_chat, messages.c.run_id.in_(ids))
            return TurnPage(tuple(turns[chat_id, run_id] for run_id in ids), next_cursor)

        return await self._read_chat(chat_id, read)

    async def newest_turns(self, limit: int) -> list[TurnSummary]:
        """Return the newest turns of all chats, newest first.

        They have `failures`, but no `answer` and `texts`; very long questions are truncated.
        """
        questions = select(messages.c.id, messages.c.chat_id, messages.c.run_id).join(chats)
        query = questions.where(IS_QUESTION, self._is_mine)

        def read(connection: Connection) -> list[TurnSummary]:
            newest = query.where(_is_new(connection)).order_by(messages.c.id.desc()).limit(limit)
            rows = connection.execute(newest).all()
            if not rows:
                return []
            of_turns = messages.c.run_id.in_([row.run_id for row in rows]), messages.c.id >= rows[-1].id
            turns = load_turns(connection, *of_turns, is_listed=True)
            failures = read_failures(connection, of_turns)
            places = [(row.chat_id, row.run_id) for row in rows]
            return [replace(turns[place], failures=failures[place]) for place in places]

        return await self._database.read(read)

    async def turn(self, chat_id: str, run_id: str) -> TurnSummary | None:
        """Return one turn of a chat, None if it does not exist; raises `UnknownChat`."""
        of_turn = messages.c.chat_id == chat_id, messages.c.run_id == run_id
        turns = await self._read_chat(chat_id, lambda connection: load_turns(connection, *of_turn))
        return turns.get((chat_id, run_id))

    async def calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> CallPage:
        """Return a page of calls, newest first."""

        def read(connection: Connection) -> CallPage:
            top = _next_id(connection) if cursor is None else read_cursor(cursor)
            # Within one chat an index finds the rows, so no window is needed.
            bottom = 0 if wanted.chat_id is not None else max(0, top - WINDOW_ROWS)
            query = SUMMARIES.where(*self._conditions(wanted), messages.c.id >= bottom)
            rows, next_cursor = read_page(connection, query, messages.c.id, limit, cursor)
            if next_cursor is None and bottom:
                next_cursor = write_cursor(bottom)
            return CallPage(summarise_calls(connection, rows), next_cursor)

        return await self._database.read(read)

    async def calls_of_turn(self, chat_id: str, run_id: str, limit: int, cursor: str | None = None) -> CallPage:
        """Return the calls of a turn with their status events, oldest first; raises `UnknownChat`."""
        query = SUMMARIES.where(messages.c.chat_id == chat_id, messages.c.run_id == run_id, IS_CALL)

        def read(connection: Connection) -> CallPage:
            rows, next_cursor = read_page(connection, query, messages.c.id, limit, cursor, is_oldest_first=True)
            return CallPage(summarise_calls(connection, rows), next_cursor)

        return await self._read_chat(chat_id, read)

    async def tools(self, wanted: ToolCallFilter) -> list[ToolSummary]:
        """Return statistics of the newest calls for each tool, the most used tool first."""

        def read(connection: Connection) -> list[ToolSummary]:
            return summarise_tools(connection, [*self._conditions(wanted), _is_new(connection)])

        return await self._database.read(read)

    async def slowest_calls(self, wanted: ToolCallFilter, limit: int) -> list[CallSummary]:
        """Return the slowest of the newest calls, the slowest first."""
        query = SUMMARIES.where(*self._conditions(wanted), messages.c.duration_ms.is_not(None))
        query = query.order_by(messages.c.duration_ms.desc(), messages.c.id.desc()).limit(limit)

        def read(connection: Connection) -> list[CallSummary]:
            return list(summarise_calls(connection, connection.execute(query.where(_is_new(connection))).all()))

        return await self._database.read(read)

    async def results(self, chat_id: str, tool_call_ids: Collection[str]) -> dict[str, ResultSize]:
        """Return the lengths of results in a chat, by call id; raises `UnknownChat`."""
        full_length = func.length(messages.c.tool_output)
        query = select(
            messages.c.tool_call_id,
            messages.c.run_id,
            full_length.label("chars"),
            func.coalesce(func.length(messages.c.replay_output), full_length).label("replayed_chars"),
        ).where(messages.c.chat_id == chat_id, messages.c.tool_call_id.in_(tool_call_ids))
        rows = await self._read_chat(chat_id, lambda connection: connection.execute(query).all())
        return {row.tool_call_id: ResultSize(row.run_id, row.chars or 0, row.replayed_chars or 0) for row in rows}

    async def open_runs(self) -> list[OpenRun]:
        """Return the active runs of all servers of the database, oldest first, at most `MAX_OPEN_RUNS`."""
        is_open = runs.c.ended_at.is_(None), is_owned_by(runs.c.user_id, self._user_id)
        query = select(runs).where(*is_open).order_by(runs.c.begun_at).limit(MAX_OPEN_RUNS)
        return [
            OpenRun(row.id, row.agent_id, row.chat_id, row.user_id, row.owner, row.begun_at, row.parked_at is not None)
            for row in await self._database.fetch(query)
        ]

    async def find_missing(self, chat_ids: Collection[str]) -> set[str]:
        """Return the ids among `chat_ids` that have no stored chat."""
        existing = await self._database.fetch(select(chats.c.id).where(chats.c.id.in_(chat_ids), self._is_mine))
        return set(chat_ids) - {row.id for row in existing}

    async def count_calls(self, chat_id: str, before: float) -> int:
        """Return the number of calls of a chat that began before a time, in Unix seconds; raises `UnknownChat`."""
        query = select(func.count()).where(messages.c.chat_id == chat_id, IS_CALL, messages.c.started_at < before)
        return await self._read_chat(chat_id, lambda connection: connection.scalar(query) or 0)

    def _conditions(self, wanted: ToolCallFilter) -> list[ColumnElement[bool]]:
        conditions = [IS_CALL, self._is_mine, *match_call(wanted)]
        if wanted.text:
            columns = (messages.c.arguments, messages.c.tool_output)
            conditions.append(or_(*(column.icontains(wanted.text, autoescape=True) for column in columns)))
        return conditions


def _next_id(connection: Connection) -> int:
    return (connection.scalar(select(func.max(messages.c.id))) or 0) + 1


def _is_new(connection: Connection) -> ColumnElement[bool]:
    """Return the condition for the newest `WINDOW_ROWS` rows."""
    return messages.c.id >= max(0, _next_id(connection) - WINDOW_ROWS)


def _write_chat_cursor(row: Row[*tuple[Any, ...]]) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.updated_at, row.id]).encode()).decode()


def _read_chat_cursor(cursor: str) -> tuple[float, str]:
    try:
        # Integers are parsed as floats, so that a huge number becomes infinity instead of raising OverflowError.
        at, chat_id = json.loads(base64.urlsafe_b64decode(cursor.encode()), parse_int=float)
        return float(at), storable(str(chat_id))
    except (ValueError, TypeError, RecursionError):
        raise RequestError(INVALID_CURSOR) from None
