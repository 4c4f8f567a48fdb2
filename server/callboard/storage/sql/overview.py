"""Lists and summaries of chats, turns and calls, for the inspector.

Text searches and tool statistics examine a limited number of the newest rows, so that their cost does not grow with the
database.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, case, exists, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from callboard._history.records import message_text
from callboard._text import storable
from callboard.errors import RequestError
from callboard.storage.rows import (
    QUESTION_CHARS,
    SUMMARY_CHARS,
    choose_rank,
    compare_call,
    compare_message,
    is_failure,
    read_cursor,
    read_ending,
    read_question,
    show_question,
    summarise_call,
    write_cursor,
    write_cursor_at,
)
from callboard.storage.sql.chats import MAX_IDS_PER_QUERY, find_owner, read_statuses
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages, runs
from callboard.storage.values import (
    ANY_USER,
    CallPage,
    CallSummary,
    ChatFilter,
    ChatPage,
    ChatSummary,
    KeptResult,
    OpenRun,
    ToolCallFilter,
    ToolSummary,
    TurnPage,
    TurnSummary,
)
from callboard.storage.words import parse_query

WINDOW_ROWS = 100_000
"""The message rows that a search examines for one page, and that tool statistics are computed from."""
WINDOW_CHATS = 2_000
"""The chats that a filter examines for one page."""
MAX_OPEN_RUNS = 300
MAX_FAILURES = 300
"""The most failed calls in a list of turns."""

IS_CALL = messages.c.role == "tool"
IS_QUESTION = messages.c.role == "user"
IS_ERROR = and_(*is_failure(messages.c.error_code))
ERRORS = func.sum(case((IS_ERROR, 1), else_=0))
SHOWN = [column for column in messages.c if column.name not in ("arguments", "tool_output", "replay_output", "content")]
SUMMARIES = select(
    *SHOWN,
    func.substr(messages.c.arguments, 1, SUMMARY_CHARS).label("arguments"),
    func.substr(messages.c.tool_output, 1, SUMMARY_CHARS).label("tool_output"),
    func.length(messages.c.tool_output).label("result_chars"),
    chats.c.user_id,
    chats.c.user_name,
).join(chats)


class Overview:
    """Lists of the chats, turns and calls of one user, or of all users for `ANY_USER`.

    The cost of a page does not depend on the number of pages before or after it. Methods with a `cursor` raise
    `RequestError` if it is invalid.
    """

    def __init__(self, database: Database, user_id: object) -> None:
        self._database = database
        self._user_id = user_id

    async def chats(self, wanted: ChatFilter, limit: int, cursor: str | None = None) -> ChatPage:
        """Return a page of chats, those with the newest answers first."""
        query = select(chats)
        if self._user_id is not ANY_USER:
            query = query.where(chats.c.user_id == self._user_id)
        if words := parse_query(wanted.text):
            hits = self._database.dialect.hits(MESSAGE_WORDS, words)
            said = select(messages.c.chat_id).join(hits, hits.c.rowid == messages.c.id)
            query = query.where(chats.c.id.in_(said))
        # Exclude chats by their own times, so that their messages need not be examined.
        if wanted.since is not None:
            query = query.where(chats.c.updated_at >= wanted.since)
        if wanted.until is not None:
            query = query.where(chats.c.created_at < wanted.until)
        if cursor is not None:
            at, chat_id = _read_chat_cursor(cursor)
            query = query.where(or_(chats.c.updated_at < at, and_(chats.c.updated_at == at, chats.c.id < chat_id)))

        query = query.order_by(chats.c.updated_at.desc(), chats.c.id.desc())
        fitting = query
        if conditions := compare_message(messages.c, wanted):
            window = query.limit(WINDOW_CHATS).subquery()
            fits = exists().where(messages.c.chat_id == window.c.id, *conditions)
            fitting = select(window).where(fits).order_by(window.c.updated_at.desc(), window.c.id.desc())

        def read(connection: Connection) -> ChatPage:
            rows = connection.execute(fitting.limit(limit + 1)).all()
            page = rows[:limit]
            found = _summarise_chats(connection, page)
            last = page[-1] if len(rows) > limit else None
            if last is None and conditions:
                last = connection.execute(query.limit(1).offset(WINDOW_CHATS - 1)).first()
            return ChatPage(found, _write_chat_cursor(last) if last else None)

        return await self._database.read(read)

    async def chat(self, chat_id: str) -> ChatSummary:
        """Return one chat; raises `UnknownChat`."""

        def read(connection: Connection) -> ChatSummary:
            find_owner(connection, chat_id, self._user_id)
            [found] = _summarise_chats(connection, connection.execute(select(chats).where(chats.c.id == chat_id)).all())
            return found

        return await self._database.read(read)

    async def turns(self, chat_id: str, limit: int, cursor: str | None = None) -> TurnPage:
        """Return the turns of a chat, newest first; raises `UnknownChat`."""
        of_chat = messages.c.chat_id == chat_id
        begun = (
            select(messages.c.run_id, func.min(messages.c.id).label("id"))
            .where(of_chat)
            .group_by(messages.c.run_id)
            .subquery()
        )
        query = select(begun).order_by(begun.c.id.desc()).limit(limit + 1)
        if cursor is not None:
            query = query.where(begun.c.id < read_cursor(cursor))

        def read(connection: Connection) -> TurnPage:
            find_owner(connection, chat_id, self._user_id)
            rows = connection.execute(query).all()
            ids = [row.run_id for row in rows[:limit]]
            turns = _load_turns(connection, of_chat, messages.c.run_id.in_(ids))
            return TurnPage(tuple(turns[chat_id, run_id] for run_id in ids), write_cursor(rows, limit))

        return await self._database.read(read)

    async def newest_turns(self, limit: int) -> list[TurnSummary]:
        """Return the newest turns of all chats, newest first.

        They have `failures`, but no `answer` and `texts`; very long questions are truncated.
        """
        query = select(messages.c.id, messages.c.chat_id, messages.c.run_id).where(IS_QUESTION)
        if self._user_id is not ANY_USER:
            query = query.join(chats).where(chats.c.user_id == self._user_id)

        def read(connection: Connection) -> list[TurnSummary]:
            newest = query.where(_is_new(connection)).order_by(messages.c.id.desc()).limit(limit)
            rows = connection.execute(newest).all()
            if not rows:
                return []
            of_turns = messages.c.run_id.in_([row.run_id for row in rows]), messages.c.id >= rows[-1].id
            turns = _load_turns(connection, *of_turns, is_listed=True)
            failures = _read_failures(connection, of_turns)
            places = [(row.chat_id, row.run_id) for row in rows]
            return [replace(turns[place], failures=failures[place]) for place in places]

        return await self._database.read(read)

    async def turn(self, chat_id: str, run_id: str) -> TurnSummary | None:
        """Return one turn of a chat, None if it does not exist; raises `UnknownChat`."""

        def read(connection: Connection) -> TurnSummary | None:
            find_owner(connection, chat_id, self._user_id)
            of_turn = messages.c.chat_id == chat_id, messages.c.run_id == run_id
            return _load_turns(connection, *of_turn).get((chat_id, run_id))

        return await self._database.read(read)

    async def calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> CallPage:
        """Return a page of calls, newest first."""
        before = None if cursor is None else read_cursor(cursor)

        def read(connection: Connection) -> CallPage:
            top = before or _next_id(connection)
            # Within one chat an index finds the rows, so no window is needed.
            bottom = 0 if wanted.chat_id is not None else max(0, top - WINDOW_ROWS)
            query = SUMMARIES.where(*self._conditions(wanted), messages.c.id < top, messages.c.id >= bottom)
            rows = connection.execute(query.order_by(messages.c.id.desc()).limit(limit + 1)).all()
            next_cursor = write_cursor(rows, limit) or (write_cursor_at(bottom) if bottom else None)
            return CallPage(_summarise(connection, rows[:limit]), next_cursor)

        return await self._database.read(read)

    async def calls_of_turn(self, chat_id: str, run_id: str, limit: int, cursor: str | None = None) -> CallPage:
        """Return the calls of a turn with their status events, oldest first; raises `UnknownChat`."""
        query = (
            SUMMARIES.where(messages.c.chat_id == chat_id, messages.c.run_id == run_id, IS_CALL)
            .order_by(messages.c.id)
            .limit(limit + 1)
        )
        if cursor is not None:
            query = query.where(messages.c.id > read_cursor(cursor))

        def read(connection: Connection) -> CallPage:
            find_owner(connection, chat_id, self._user_id)
            rows = connection.execute(query).all()
            return CallPage(_summarise(connection, rows[:limit]), write_cursor(rows, limit))

        return await self._database.read(read)

    async def tools(self, wanted: ToolCallFilter) -> list[ToolSummary]:
        """Return statistics of the newest calls for each tool, the most used tool first."""

        def read(connection: Connection) -> list[ToolSummary]:
            return _summarise_tools(connection, [*self._conditions(wanted), _is_new(connection)])

        return await self._database.read(read)

    async def slowest_calls(self, wanted: ToolCallFilter, limit: int) -> list[CallSummary]:
        """Return the slowest of the newest calls, the slowest first."""
        query = SUMMARIES.where(*self._conditions(wanted), messages.c.duration_ms.is_not(None))
        query = query.order_by(messages.c.duration_ms.desc(), messages.c.id.desc()).limit(limit)

        def read(connection: Connection) -> list[CallSummary]:
            return list(_summarise(connection, connection.execute(query.where(_is_new(connection))).all()))

        return await self._database.read(read)

    async def results(self, chat_id: str, tool_call_ids: Collection[str]) -> dict[str, KeptResult]:
        """Return the lengths of results in a chat, by call id; raises `UnknownChat`."""
        wanted = list(dict.fromkeys(tool_call_ids))
        full_length = func.length(messages.c.tool_output)
        columns = (
            messages.c.tool_call_id,
            messages.c.run_id,
            full_length.label("chars"),
            func.coalesce(func.length(messages.c.replay_output), full_length).label("replayed_chars"),
        )

        def read(connection: Connection) -> dict[str, KeptResult]:
            find_owner(connection, chat_id, self._user_id)
            found: dict[str, KeptResult] = {}
            for start in range(0, len(wanted), MAX_IDS_PER_QUERY):
                part = wanted[start : start + MAX_IDS_PER_QUERY]
                query = select(*columns).where(messages.c.chat_id == chat_id, messages.c.tool_call_id.in_(part))
                for row in connection.execute(query):
                    found[row.tool_call_id] = KeptResult(row.run_id, row.chars or 0, row.replayed_chars or 0)
            return found

        return await self._database.read(read)

    async def open_runs(self) -> list[OpenRun]:
        """Return the active runs of all servers of the database, oldest first, at most `MAX_OPEN_RUNS`."""
        query = select(runs).where(runs.c.ended_at.is_(None)).order_by(runs.c.begun_at).limit(MAX_OPEN_RUNS)
        if self._user_id is not ANY_USER:
            query = query.where(runs.c.user_id == self._user_id)
        return [
            OpenRun(row.id, row.agent_id, row.chat_id, row.user_id, row.owner, row.begun_at)
            for row in await self._database.fetch(query)
        ]

    async def find_missing(self, chat_ids: Collection[str]) -> set[str]:
        """Return the ids among `chat_ids` that have no stored chat."""
        query = select(chats.c.id).where(chats.c.id.in_(chat_ids))
        if self._user_id is not ANY_USER:
            query = query.where(chats.c.user_id == self._user_id)
        existing = await self._database.fetch(query)
        return set(chat_ids) - {row.id for row in existing}

    async def count_calls(self, chat_id: str, before: float) -> int:
        """Return the number of calls of a chat that began before a time, in Unix seconds; raises `UnknownChat`."""
        query = select(func.count()).where(messages.c.chat_id == chat_id, IS_CALL, messages.c.started_at < before)

        def read(connection: Connection) -> int:
            find_owner(connection, chat_id, self._user_id)
            return connection.scalar(query) or 0

        return await self._database.read(read)

    def _conditions(self, wanted: ToolCallFilter) -> list[ColumnElement[bool]]:
        conditions = [IS_CALL, *compare_call(messages.c, wanted)]
        if self._user_id is not ANY_USER:
            conditions.append(chats.c.user_id == self._user_id)
        if wanted.text:
            columns = (messages.c.arguments, messages.c.tool_output)
            conditions.append(or_(*(column.icontains(wanted.text, autoescape=True) for column in columns)))
        return conditions


def _next_id(connection: Connection) -> int:
    return (connection.scalar(select(func.max(messages.c.id))) or 0) + 1


def _is_new(connection: Connection) -> ColumnElement[bool]:
    """Return the condition for the newest `WINDOW_ROWS` rows."""
    return messages.c.id >= max(0, _next_id(connection) - WINDOW_ROWS)


def _summarise(connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> tuple[CallSummary, ...]:
    statuses = read_statuses(connection, rows)
    return tuple(summarise_call(row, statuses[row.id]) for row in rows)


def _summarise_chats(connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> tuple[ChatSummary, ...]:
    counts = _count_rows(connection, [row.id for row in rows])
    return tuple(
        ChatSummary(row.id, row.user_id, *counts[row.id], row.created_at, row.updated_at, row.user_name) for row in rows
    )


def _count_rows(connection: Connection, chat_ids: Sequence[str]) -> dict[str, tuple[str, int, int, int]]:
    """Return for each chat an excerpt of its first question, and the numbers of its turns, calls and errors."""
    counted = select(
        messages.c.chat_id,
        func.min(case((messages.c.role == "user", messages.c.id))).label("first"),
        func.sum(case((messages.c.role == "user", 1), else_=0)).label("turns"),
        func.sum(case((IS_CALL, 1), else_=0)).label("calls"),
        ERRORS.label("errors"),
    )
    rows = connection.execute(counted.where(messages.c.chat_id.in_(chat_ids)).group_by(messages.c.chat_id)).all()
    firsts = [row.first for row in rows if row.first]
    said = connection.execute(select(messages.c.id, messages.c.content).where(messages.c.id.in_(firsts)))
    texts = {row.id: show_question(row.content) for row in said}
    found = dict.fromkeys(chat_ids, ("", 0, 0, 0))
    found.update({row.chat_id: (texts.get(row.first, ""), row.turns, row.calls, row.errors) for row in rows})
    return found


def _load_turns(
    connection: Connection, *of_turns: ColumnElement[bool], is_listed: bool = False
) -> dict[tuple[str, str], TurnSummary]:
    """Return turns by chat id and run id; with `is_listed` only with the beginnings of their questions."""
    counted = (
        select(
            messages.c.chat_id,
            messages.c.run_id,
            func.max(chats.c.user_id).label("user_id"),
            func.max(chats.c.user_name).label("user_name"),
            func.max(messages.c.agent_id).label("agent_id"),
            func.max(messages.c.message_id).label("message_id"),
            func.max(messages.c.ending).label("ending"),
            func.min(messages.c.created_at).label("began_at"),
            func.max(func.coalesce(messages.c.ended_at, messages.c.created_at)).label("last_at"),
            func.sum(case((IS_CALL, 1), else_=0)).label("calls"),
            ERRORS.label("errors"),
        )
        .join(chats)
        .where(*of_turns)
        .group_by(messages.c.chat_id, messages.c.run_id)
    )
    texts = _read_questions(connection, of_turns) if is_listed else _read_texts(connection, of_turns)
    return {
        (row.chat_id, row.run_id): TurnSummary(
            row.run_id,
            row.chat_id,
            row.user_id,
            row.agent_id,
            row.message_id,
            texts[row.chat_id, row.run_id].get("user", ""),
            texts[row.chat_id, row.run_id].get("assistant", ""),
            row.began_at,
            row.last_at,
            row.calls,
            row.errors,
            row.user_name,
            read_ending(row.ending),
            {index: text for index, text in texts[row.chat_id, row.run_id].items() if isinstance(index, int)},
        )
        for row in connection.execute(counted)
    }


_Texts = defaultdict[tuple[str, str], dict[str | int, str]]
"""Texts by chat id and run id, then by `user` (the question), `assistant` (the answer) or the index of a round."""


def _read_questions(connection: Connection, of_turns: Sequence[ColumnElement[bool]]) -> _Texts:
    beginning = func.substr(messages.c.content, 1, QUESTION_CHARS).label("content")
    texts: _Texts = defaultdict(dict)
    for row in connection.execute(
        select(messages.c.chat_id, messages.c.run_id, beginning).where(*of_turns, IS_QUESTION)
    ):
        texts[row.chat_id, row.run_id]["user"] = read_question(row.content)
    return texts


def _read_failures(
    connection: Connection, of_turns: Sequence[ColumnElement[bool]]
) -> defaultdict[tuple[str, str], list[CallSummary]]:
    """Return the newest failed calls by chat id and run id, those of a run in order."""
    newest = SUMMARIES.where(*of_turns, IS_ERROR).order_by(messages.c.id.desc()).limit(MAX_FAILURES)
    failures: defaultdict[tuple[str, str], list[CallSummary]] = defaultdict(list)
    for one in reversed(_summarise(connection, connection.execute(newest).all())):
        failures[one.call.chat_id, one.call.run_id].append(one)
    return failures


def _read_texts(connection: Connection, of_turns: Sequence[ColumnElement[bool]]) -> _Texts:
    is_round = messages.c.tool_calls.is_not(None)
    said = select(
        messages.c.chat_id,
        messages.c.run_id,
        messages.c.role,
        messages.c.content,
        case((is_round, messages.c.round_index)).label("round_index"),
    )
    texts: _Texts = defaultdict(dict)
    for row in connection.execute(said.where(*of_turns, ~IS_CALL).order_by(messages.c.id)):
        place = row.role if row.round_index is None else row.round_index
        if row.content or place == "user":
            texts[row.chat_id, row.run_id][place] = message_text(row.content)
    return texts


def _summarise_tools(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[ToolSummary]:
    calls = (
        select(messages.c.tool_name, func.count().label("calls"), ERRORS.label("errors"))
        .join(chats)
        .where(*conditions)
        .group_by(messages.c.tool_name)
    )
    by_duration = func.row_number().over(partition_by=messages.c.tool_name, order_by=messages.c.duration_ms)
    timed = (
        select(
            messages.c.tool_name,
            messages.c.duration_ms,
            by_duration.label("place"),
            func.count().over(partition_by=messages.c.tool_name).label("of"),
        )
        .join(chats)
        .where(*conditions, messages.c.duration_ms.is_not(None))
        .subquery()
    )
    places: Select[Any] = select(timed).where(
        # The same ranks as `choose_rank`.
        or_(
            timed.c.place == (timed.c.of * 50 + 99) // 100,
            timed.c.place == (timed.c.of * 95 + 99) // 100,
            timed.c.place == timed.c.of,
        )
    )
    durations: defaultdict[str, dict[int, int]] = defaultdict(dict)
    counts: dict[str, int] = {}
    for row in connection.execute(places):
        durations[row.tool_name][row.place] = row.duration_ms
        counts[row.tool_name] = row.of
    found = []
    for row in connection.execute(calls):
        count = counts.get(row.tool_name, 0)
        of_tool = durations[row.tool_name]
        ranks = [of_tool.get(choose_rank(count, percent)) for percent in (50, 95, 100)]
        found.append(ToolSummary(row.tool_name, row.calls, row.errors, *ranks))
    return sorted(found, key=lambda tool: (-tool.calls, tool.tool_name))


def _write_chat_cursor(row: Row[*tuple[Any, ...]]) -> str:
    return base64.urlsafe_b64encode(json.dumps([row.updated_at, row.id]).encode()).decode()


def _read_chat_cursor(cursor: str) -> tuple[float, str]:
    try:
        # Integers are parsed as floats, so that a huge number becomes infinity instead of raising OverflowError.
        at, chat_id = json.loads(base64.urlsafe_b64decode(cursor.encode()), parse_int=float)
        return float(at), storable(str(chat_id))
    except (ValueError, TypeError, RecursionError):
        raise RequestError("cursor: take it from next_cursor of the page before") from None
