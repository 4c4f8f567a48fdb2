"""Lists and summaries of chats, turns and calls, for the inspector.

A search of calls examines a limited number of the newest rows, so that its cost does not grow with the database.
"""

import base64
import json
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, tuple_

from callboard._history.turns import message_text
from callboard.errors import RequestError
from callboard.openwebui.requests import strip_context
from callboard.storage.rows import read_call
from callboard.storage.sql.chats import IS_SAID, UserChats, read_statuses
from callboard.storage.sql.database import Rows
from callboard.storage.sql.queries import (
    INVALID_CURSOR,
    IS_CALL,
    IS_FAILURE,
    IS_WAITING,
    match_call,
    read_cursor,
    read_page,
    write_cursor,
)
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, is_owned_by, messages, runs
from callboard.storage.summaries import (
    CallSummary,
    ChatSummary,
    OpenRun,
    ResultSize,
    TurnSummary,
)
from callboard.storage.values import Page, ToolCallFilter
from callboard.storage.words import excerpt, parse_query
from callboard.text import storable
from callboard_protocol import Done, Error

WINDOW_ROWS = 100_000
"""The message rows that a search examines for one page."""
MAX_OPEN_RUNS = 300
MAX_FAILURES = 300
"""The most failed calls in a list of turns."""
MAX_NAMESAKES = 10
"""The most users of one name that an error lists."""
EXCERPT_CHARS = 300
"""The approximate length of excerpts from past chats."""
SUMMARY_CHARS = 2_000
"""The length to which lists truncate the arguments and the result of a call."""
QUESTION_CHARS = 50_000
"""The length to which lists read a question: Open WebUI usually puts less context than this before the user's text."""

_ENDING: TypeAdapter[Done | Error] = TypeAdapter(Annotated[Done | Error, Field(discriminator="type")])
_TEXT_OF_PART = re.compile(r'"text": ("(?:[^"\\]|\\.)*")')

IS_QUESTION = and_(messages.c.role == "user", messages.c.round_index.is_(None))
ERRORS = func.count().filter(IS_FAILURE)
WAITING = func.count().filter(IS_WAITING)
SHOWN = [column for column in messages.c if column.name not in ("arguments", "tool_output", "replay_output", "content")]
SUMMARIES = select(
    *SHOWN,
    func.substr(messages.c.arguments, 1, SUMMARY_CHARS).label("arguments"),
    func.substr(messages.c.tool_output, 1, SUMMARY_CHARS).label("tool_output"),
    func.length(messages.c.tool_output).label("result_chars"),
    chats.c.user_id,
    chats.c.user_name,
).join(chats)


class Overview(UserChats):
    """Lists of the chats, turns and calls of one user, or of all users for `ANY_USER`.

    The cost of a page does not depend on the number of pages before or after it. Methods with a `cursor` raise
    `RequestError` if it is invalid.
    """

    async def chats(self, text: str, limit: int, cursor: str | None = None) -> Page[ChatSummary]:
        """Return a page of the chats with one of the words of a text, those with the newest answers first.

        A text without words finds all chats.
        """
        query = select(chats).where(self._is_mine)
        if words := parse_query(text):
            hits = self._database.find_words(MESSAGE_WORDS, words)
            said = select(messages.c.chat_id).join(hits, hits.c.rowid == messages.c.id)
            query = query.where(chats.c.id.in_(said))
        if cursor is not None:
            query = query.where(tuple_(chats.c.updated_at, chats.c.id) < tuple_(*_read_chat_cursor(cursor)))
        query = query.order_by(chats.c.updated_at.desc(), chats.c.id.desc()).limit(limit + 1)

        def read(connection: Connection) -> Page[ChatSummary]:
            rows = connection.execute(query).all()
            page = rows[:limit]
            next_cursor = write_cursor([page[-1].updated_at, page[-1].id]) if len(rows) > limit else None
            return Page(summarise_chats(connection, page), next_cursor)

        return await self._database.read(read)

    async def chat(self, chat_id: str) -> ChatSummary:
        """Return one chat; raises `UnknownChat`."""
        query = select(chats).where(chats.c.id == chat_id)
        [found] = await self._read_chat(
            chat_id, lambda connection: summarise_chats(connection, connection.execute(query).all())
        )
        return found

    async def turns(self, chat_id: str, limit: int, cursor: str | None = None) -> Page[TurnSummary]:
        """Return the turns of a chat, newest first; raises `UnknownChat`."""
        of_chat = messages.c.chat_id == chat_id
        begun = (
            select(messages.c.run_id, func.min(messages.c.id).label("id"))
            .where(of_chat)
            .group_by(messages.c.run_id)
            .subquery()
        )

        def read(connection: Connection) -> Page[TurnSummary]:
            rows, next_cursor = read_page(connection, select(begun), begun.c.id, limit, cursor)
            ids = [row.run_id for row in rows]
            turns = _load_turns(connection, of_chat, messages.c.run_id.in_(ids))
            return Page(tuple(turns[chat_id, run_id] for run_id in ids), next_cursor)

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
            turns = _load_turns(connection, *of_turns, is_listed=True)
            failures = _read_failures(connection, of_turns)
            places = [(row.chat_id, row.run_id) for row in rows]
            return [replace(turns[place], failures=failures[place]) for place in places]

        return await self._database.read(read)

    async def turn(self, chat_id: str, run_id: str) -> TurnSummary | None:
        """Return one turn of a chat, None if it does not exist; raises `UnknownChat`."""
        of_turn = messages.c.chat_id == chat_id, messages.c.run_id == run_id
        turns = await self._read_chat(chat_id, lambda connection: _load_turns(connection, *of_turn))
        return turns.get((chat_id, run_id))

    async def calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> Page[CallSummary]:
        """Return a page of calls, newest first."""
        conditions = [IS_CALL, self._is_mine, *match_call(wanted)]
        if wanted.text:
            columns = (messages.c.arguments, messages.c.tool_output)
            conditions.append(or_(*(column.icontains(wanted.text, autoescape=True) for column in columns)))

        def read(connection: Connection) -> Page[CallSummary]:
            top = _next_id(connection) if cursor is None else read_cursor(cursor)
            # Within one chat an index finds the rows, so no window is needed.
            bottom = 0 if wanted.chat_id is not None else max(0, top - WINDOW_ROWS)
            query = SUMMARIES.where(*conditions, messages.c.id >= bottom)
            rows, next_cursor = read_page(connection, query, messages.c.id, limit, cursor)
            if next_cursor is None and bottom:
                next_cursor = write_cursor(bottom)
            return Page(_summarise_calls(connection, rows), next_cursor)

        return await self._database.read(read)

    async def calls_of_turn(
        self, chat_id: str, run_id: str, limit: int, cursor: str | None = None
    ) -> Page[CallSummary]:
        """Return the calls of a turn with their status events, oldest first; raises `UnknownChat`."""
        query = SUMMARIES.where(messages.c.chat_id == chat_id, messages.c.run_id == run_id, IS_CALL)

        def read(connection: Connection) -> Page[CallSummary]:
            rows, next_cursor = read_page(connection, query, messages.c.id, limit, cursor, is_oldest_first=True)
            return Page(_summarise_calls(connection, rows), next_cursor)

        return await self._read_chat(chat_id, read)

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
            OpenRun(row.id, row.agent_id, row.chat_id, row.user_id, row.owner, row.begun_at)
            for row in await self._database.fetch(query)
        ]

    async def find_user_id(self, user: str) -> str:
        """Return the id of the user with this id, name or e-mail address; the same text if there is none.

        Raises `RequestError` if several users have the name or the address.
        """
        query = select(chats.c.user_id).where(self._is_mine, chats.c.user_id.is_not(None)).distinct()
        is_named = or_(*(func.lower(column) == func.lower(user) for column in (chats.c.user_name, chats.c.user_email)))
        for condition in (chats.c.user_id == user, is_named):
            found = [row.user_id for row in await self._database.fetch(query.where(condition).limit(MAX_NAMESAKES))]
            if len(found) > 1:
                raise RequestError(f"several users are named {user!r}: filter by one of the ids {', '.join(found)}")
            if found:
                return str(found[0])
        return user

    async def find_missing(self, chat_ids: Collection[str]) -> set[str]:
        """Return the ids among `chat_ids` that have no stored chat."""
        existing = await self._database.fetch(select(chats.c.id).where(chats.c.id.in_(chat_ids), self._is_mine))
        return set(chat_ids) - {row.id for row in existing}


def _next_id(connection: Connection) -> int:
    return (connection.scalar(select(func.max(messages.c.id))) or 0) + 1


def _is_new(connection: Connection) -> ColumnElement[bool]:
    """Return the condition for the newest `WINDOW_ROWS` rows."""
    return messages.c.id >= max(0, _next_id(connection) - WINDOW_ROWS)


def _read_chat_cursor(cursor: str) -> tuple[float, str]:
    try:
        # Integers are parsed as floats, so that a huge number becomes infinity instead of raising OverflowError.
        at, chat_id = json.loads(base64.urlsafe_b64decode(cursor.encode()), parse_int=float)
        return float(at), storable(str(chat_id))
    except (ValueError, TypeError, RecursionError):
        raise RequestError(INVALID_CURSOR) from None


def _summarise_calls(connection: Connection, rows: Rows) -> tuple[CallSummary, ...]:
    """Return the calls in rows of `SUMMARIES`, with their status events."""
    statuses = read_statuses(connection, rows)
    return tuple(
        CallSummary(read_call(row, statuses[row.id]), row.user_id, row.agent_id, row.result_chars or 0, row.user_name)
        for row in rows
    )


def summarise_chats(connection: Connection, rows: Rows) -> tuple[ChatSummary, ...]:
    """Return the chats in rows of `chats`, in the same order."""
    counted = (
        select(
            messages.c.chat_id,
            func.min(messages.c.id).filter(IS_QUESTION).label("first"),
            func.count().filter(IS_QUESTION).label("turns"),
            func.count().filter(IS_CALL).label("calls"),
            ERRORS.label("errors"),
            WAITING.label("waiting"),
        )
        .where(messages.c.chat_id.in_([row.id for row in rows]))
        .group_by(messages.c.chat_id)
        .subquery()
    )
    query = select(counted, messages.c.content).outerjoin(messages, messages.c.id == counted.c.first)
    counts = dict.fromkeys((row.id for row in rows), ("", 0, 0, 0, 0))
    for row in connection.execute(query):
        began_with = excerpt(strip_context(message_text(row.content)), (), EXCERPT_CHARS)
        counts[row.chat_id] = began_with, row.turns, row.calls, row.errors, row.waiting
    return tuple(
        ChatSummary(row.id, row.user_id, *counts[row.id], row.created_at, row.updated_at, row.user_name) for row in rows
    )


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
            func.max(messages.c.ending).label("ending"),
            func.min(messages.c.created_at).label("began_at"),
            func.max(func.coalesce(messages.c.ended_at, messages.c.created_at)).label("last_at"),
            func.count().filter(IS_CALL).label("calls"),
            ERRORS.label("errors"),
            WAITING.label("waiting"),
        )
        .join(chats)
        .where(*of_turns)
        .group_by(messages.c.chat_id, messages.c.run_id)
    )
    texts = _read_questions(connection, of_turns) if is_listed else _read_texts(connection, of_turns)
    heard = {} if is_listed else _read_said(connection, of_turns)
    found = {}
    for row in connection.execute(counted):
        said = texts[row.chat_id, row.run_id]
        ending = _ENDING.validate_json(row.ending) if row.ending else None
        found[row.chat_id, row.run_id] = TurnSummary(
            **{**row._mapping, "ending": ending},
            question=said.get("user", ""),
            answer=said.get("assistant", ""),
            texts={index: text for index, text in said.items() if isinstance(index, int)},
            said=heard.get((row.chat_id, row.run_id), ()),
        )
    return found


_Texts = defaultdict[tuple[str, str], dict[str | int, str]]
"""Texts by chat id and run id, then by `user` (the question), `assistant` (the answer) or the index of a round."""


def _read_questions(connection: Connection, of_turns: Sequence[ColumnElement[bool]]) -> _Texts:
    beginning = func.substr(messages.c.content, 1, QUESTION_CHARS).label("content")
    texts: _Texts = defaultdict(dict)
    for row in connection.execute(
        select(messages.c.chat_id, messages.c.run_id, beginning).where(*of_turns, IS_QUESTION)
    ):
        texts[row.chat_id, row.run_id]["user"] = _read_question(row.content or "")
    return texts


def _read_question(content: str) -> str:
    """Return the user's text from a truncated message, without Open WebUI's context; skip incomplete parts."""
    if content.startswith("[{"):
        content = "\n".join(json.loads(part) for part in _TEXT_OF_PART.findall(content))
    return strip_context(content)


def _read_failures(
    connection: Connection, of_turns: Sequence[ColumnElement[bool]]
) -> defaultdict[tuple[str, str], list[CallSummary]]:
    """Return the newest failed calls by chat id and run id, those of a run in order."""
    newest = SUMMARIES.where(*of_turns, IS_FAILURE).order_by(messages.c.id.desc()).limit(MAX_FAILURES)
    failures: defaultdict[tuple[str, str], list[CallSummary]] = defaultdict(list)
    for one in reversed(_summarise_calls(connection, connection.execute(newest).all())):
        failures[one.call.chat_id, one.call.run_id].append(one)
    return failures


def _read_said(
    connection: Connection, of_turns: Sequence[ColumnElement[bool]]
) -> defaultdict[tuple[str, str], list[tuple[float, str]]]:
    """Return the user's messages to runs by chat id and run id, each after its time."""
    columns = messages.c.chat_id, messages.c.run_id, messages.c.created_at, messages.c.content
    said: defaultdict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for row in connection.execute(select(*columns).where(*of_turns, IS_SAID).order_by(messages.c.id)):
        said[row.chat_id, row.run_id].append((row.created_at, row.content))
    return said


def _read_texts(connection: Connection, of_turns: Sequence[ColumnElement[bool]]) -> _Texts:
    said = select(messages.c.chat_id, messages.c.run_id, messages.c.role, messages.c.content, messages.c.round_index)
    texts: _Texts = defaultdict(dict)
    for row in connection.execute(said.where(*of_turns, ~IS_CALL, ~IS_SAID).order_by(messages.c.id)):
        place = row.role if row.round_index is None else row.round_index
        if row.content or place == "user":
            before = texts[row.chat_id, row.run_id].get(place, "")
            texts[row.chat_id, row.run_id][place] = before + message_text(row.content)
    return texts
