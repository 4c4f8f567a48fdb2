"""Summaries of chats, turns, calls and tools, made from their rows."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, TypeAdapter
from sqlalchemy import Connection, func, select
from sqlalchemy.sql.elements import ColumnElement

from callboard._history.records import message_text
from callboard.openwebui.requests import strip_context
from callboard.storage.rows import read_call
from callboard.storage.sql.chats import read_statuses
from callboard.storage.sql.database import Rows
from callboard.storage.sql.queries import IS_CALL, IS_FAILURE
from callboard.storage.sql.tables import chats, messages
from callboard.storage.summaries import CallSummary, ChatSummary, ToolSummary, TurnSummary
from callboard.storage.words import excerpt
from callboard_protocol import Done, Error

MAX_FAILURES = 300
"""The most failed calls in a list of turns."""
EXCERPT_CHARS = 300
"""The approximate length of excerpts from past chats."""
SUMMARY_CHARS = 2_000
"""The length to which lists truncate the arguments and the result of a call."""
QUESTION_CHARS = 50_000
"""The length to which lists read a question: Open WebUI usually puts less context than this before the user's text."""

_ENDING: TypeAdapter[Done | Error] = TypeAdapter(Annotated[Done | Error, Field(discriminator="type")])
_TEXT_OF_PART = re.compile(r'"text": ("(?:[^"\\]|\\.)*")')

IS_QUESTION = messages.c.role == "user"
ERRORS = func.count().filter(IS_FAILURE)
SHOWN = [column for column in messages.c if column.name not in ("arguments", "tool_output", "replay_output", "content")]
SUMMARIES = select(
    *SHOWN,
    func.substr(messages.c.arguments, 1, SUMMARY_CHARS).label("arguments"),
    func.substr(messages.c.tool_output, 1, SUMMARY_CHARS).label("tool_output"),
    func.length(messages.c.tool_output).label("result_chars"),
    chats.c.user_id,
    chats.c.user_name,
).join(chats)


def summarise_calls(connection: Connection, rows: Rows) -> tuple[CallSummary, ...]:
    """Return the calls in rows of `SUMMARIES`, with their status events."""
    statuses = read_statuses(connection, rows)
    return tuple(
        CallSummary(read_call(row, statuses[row.id]), row.user_id, row.agent_id, row.result_chars or 0, row.user_name)
        for row in rows
    )


def summarise_chats(connection: Connection, rows: Rows) -> tuple[ChatSummary, ...]:
    """Return the chats in rows of `chats`, in the same order."""
    counts = _count_rows(connection, [row.id for row in rows])
    return tuple(
        ChatSummary(row.id, row.user_id, *counts[row.id], row.created_at, row.updated_at, row.user_name) for row in rows
    )


def _count_rows(connection: Connection, chat_ids: Sequence[str]) -> dict[str, tuple[str, int, int, int]]:
    """Return for each chat an excerpt of its first question, and the numbers of its turns, calls and errors."""
    counted = select(
        messages.c.chat_id,
        func.min(messages.c.id).filter(IS_QUESTION).label("first"),
        func.count().filter(IS_QUESTION).label("turns"),
        func.count().filter(IS_CALL).label("calls"),
        ERRORS.label("errors"),
    )
    rows = connection.execute(counted.where(messages.c.chat_id.in_(chat_ids)).group_by(messages.c.chat_id)).all()
    firsts = [row.first for row in rows if row.first]
    said = connection.execute(select(messages.c.id, messages.c.content).where(messages.c.id.in_(firsts)))
    texts = {row.id: _show_question(row.content) for row in said}
    found = dict.fromkeys(chat_ids, ("", 0, 0, 0))
    found.update({row.chat_id: (texts.get(row.first, ""), row.turns, row.calls, row.errors) for row in rows})
    return found


def _show_question(content: str | None) -> str:
    """Return the beginning of the user's text in a message, without Open WebUI's context."""
    return excerpt(strip_context(message_text(content)), (), EXCERPT_CHARS)


def load_turns(
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
            func.count().filter(IS_CALL).label("calls"),
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
            _ENDING.validate_json(row.ending) if row.ending else None,
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
        texts[row.chat_id, row.run_id]["user"] = _read_question(row.content or "")
    return texts


def _read_question(content: str) -> str:
    """Return the user's text from a truncated message, without Open WebUI's context; skip incomplete parts."""
    if content.startswith("[{"):
        content = "\n".join(json.loads(part) for part in _TEXT_OF_PART.findall(content))
    return strip_context(content)


def read_failures(
    connection: Connection, of_turns: Sequence[ColumnElement[bool]]
) -> defaultdict[tuple[str, str], list[CallSummary]]:
    """Return the newest failed calls by chat id and run id, those of a run in order."""
    newest = SUMMARIES.where(*of_turns, IS_FAILURE).order_by(messages.c.id.desc()).limit(MAX_FAILURES)
    failures: defaultdict[tuple[str, str], list[CallSummary]] = defaultdict(list)
    for one in reversed(summarise_calls(connection, connection.execute(newest).all())):
        failures[one.call.chat_id, one.call.run_id].append(one)
    return failures


def _read_texts(connection: Connection, of_turns: Sequence[ColumnElement[bool]]) -> _Texts:
    said = select(messages.c.chat_id, messages.c.run_id, messages.c.role, messages.c.content, messages.c.round_index)
    texts: _Texts = defaultdict(dict)
    for row in connection.execute(said.where(*of_turns, ~IS_CALL).order_by(messages.c.id)):
        place = row.role if row.round_index is None else row.round_index
        if row.content or place == "user":
            texts[row.chat_id, row.run_id][place] = message_text(row.content)
    return texts


def summarise_tools(connection: Connection, conditions: Sequence[ColumnElement[bool]]) -> list[ToolSummary]:
    """Return statistics for each tool of the calls that meet all conditions, the most used tool first."""
    of_tool = messages.c.tool_name
    milliseconds = messages.c.duration_ms
    ranked = (
        select(
            of_tool,
            milliseconds,
            IS_FAILURE.label("is_failure"),
            func.row_number().over(partition_by=of_tool, order_by=milliseconds.nulls_last()).label("rank"),
            func.count(milliseconds).over(partition_by=of_tool).label("timed"),
        )
        .join(chats)
        .where(*conditions)
        .subquery()
    )

    def quantile(percent: int) -> ColumnElement[int | None]:
        """Return the smallest duration that `percent` of the tool's ended calls do not exceed."""
        return func.min(ranked.c.duration_ms).filter(ranked.c.rank * 100 >= ranked.c.timed * percent)

    query = select(
        ranked.c.tool_name,
        func.count(),
        func.count().filter(ranked.c.is_failure),
        quantile(50),
        quantile(95),
        func.max(ranked.c.duration_ms),
    ).group_by(ranked.c.tool_name)
    found = [ToolSummary(*row) for row in connection.execute(query)]
    # Sorted here, because databases do not agree about the order of letters.
    return sorted(found, key=lambda tool: (-tool.calls, tool.tool_name))
