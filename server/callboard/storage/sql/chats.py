"""Reads and deletes the chats of a user.

A user can read only their own chats; another user's chat raises the same error as a chat that does not exist. For a
client without chat ids the server makes an unguessable chat id (`OWN_CHAT_PREFIX`), and deletes the chat when no
response refers to it any more.
"""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, and_, bindparam, delete, func, or_, select, update

from callboard._history import ChatHistory, insert_turns_by_text, replay
from callboard._history.turns import ChatDict, Interjection, StoredStatus, group_calls, message_text, read_turns
from callboard.errors import UnknownChat, UnknownToolCall
from callboard.storage.rows import read_call, read_history_call
from callboard.storage.sql.database import ROWS_AT_ONCE, Database, Query, Rows, T, Work
from callboard.storage.sql.queries import match_call, read_page
from callboard.storage.sql.tables import chats, is_owned_by, messages, records, response_items, runs, tool_events
from callboard.storage.sql.waiting import WAITS
from callboard.storage.values import (
    DIGEST_CHARS,
    GRANTS,
    OWN_CHAT_PREFIX,
    Line,
    Page,
    StoredCall,
    StoredMessage,
    ToolCallFilter,
    digest,
)

IS_OWN = chats.c.id.startswith(OWN_CHAT_PREFIX, autoescape=True)
"""The server has made the id of the chat."""
IS_SAID = and_(messages.c.role == "user", messages.c.round_index.is_not(None))
"""The user has sent the message to a run."""
IS_REPLAYED = or_(
    messages.c.role == "tool", messages.c.provider_details.is_not(None), messages.c.replay_output.is_not(None), IS_SAID
)
READ_HISTORY = (
    select(
        chats.c.user_id,
        chats.c.model,
        messages.c.run_id,
        messages.c.role,
        messages.c.content,
        messages.c.place,
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
    .select_from(
        chats.outerjoin(
            messages, and_(messages.c.chat_id == chats.c.id, or_(IS_REPLAYED, bindparam("with_turns", type_=Boolean)))
        )
    )
    .where(chats.c.id == bindparam("chat"))
    .order_by(messages.c.id)
)
TOOL_CALLS = select(messages).where(messages.c.role == "tool")

CALL_COLUMNS = (
    messages.c.run_id,
    messages.c.role,
    messages.c.round_index,
    messages.c.parent_call_id,
    messages.c.tool_call_id,
    messages.c.tool_name,
    messages.c.arguments,
)


class UserChats:
    """The chats of one user, or of all users for `ANY_USER`."""

    def __init__(self, database: Database, user_id: object) -> None:
        self._database = database
        self._user_id = user_id
        self._is_mine = is_owned_by(chats.c.user_id, user_id)

    async def _read_chat(self, chat_id: str, read: Work[T]) -> T:
        """Run `read` and return its result; raises `UnknownChat` if the user has no such chat."""
        find_chat = select(chats.c.id).where(chats.c.id == chat_id, self._is_mine)

        def check_and_read(connection: Connection) -> T:
            if connection.execute(find_chat).first() is None:
                raise unknown_chat(chat_id)
            return read(connection)

        return await self._database.read(check_and_read)


def unknown_chat(chat_id: str) -> UnknownChat:
    """Return the error for a chat that does not exist or is another user's; both look the same to the client."""
    return UnknownChat(f"there is no chat {chat_id!r} of this user")


class Chats(UserChats):
    """The chats of one user, or of all users for `ANY_USER`; other chats raise `UnknownChat`."""

    async def history(self, chat_id: str, *, with_turns: bool = False) -> ChatHistory:
        """Return the tool calls and the chosen model of a chat, empty for a chat that does not exist yet.

        Raises `UnknownChat` if the chat is another user's.
        """

        def read(connection: Connection) -> ChatHistory:
            rows: Any = connection.execute(READ_HISTORY, {"chat": chat_id, "with_turns": with_turns}).all()
            if rows and rows[0].user_id != self._user_id:
                raise unknown_chat(chat_id)
            answers = [
                (row.content or "", json.loads(row.provider_details))
                for row in rows
                if row.role == "assistant" and row.provider_details is not None
            ]
            return ChatHistory(
                tuple(read_history_call(row) for row in rows if row.role == "tool"),
                tuple(answers),
                rows[0].model if rows else None,
                # A chat without messages has one row.
                turns=read_turns(row for row in rows if row.role) if with_turns else (),
                questions={
                    message_text(row.content): row.replay_output
                    for row in rows
                    if row.role == "user" and row.replay_output is not None
                },
                said=tuple(
                    Interjection(row.message_id, row.round_index, row.content or "")
                    for row in rows
                    if row.role == "user" and row.round_index is not None
                ),
            )

        return await self._database.read(read, is_patient=True)

    def message_pages(self, chat_id: str) -> AsyncIterator[list[StoredMessage]]:
        """Yield the messages of a chat page by page, so that a long chat does not block other requests."""
        return self._read_pages(chat_id, select(messages), _read_messages)

    def export_pages(self, chat_id: str) -> AsyncIterator[list[Line]]:
        """Yield the messages as lines of an export, tool calls with their `events`, page by page."""
        return self._read_pages(chat_id, select(messages), _read_lines)

    def timeline_pages(self, chat_id: str) -> AsyncIterator[list[StoredCall]]:
        """Yield the calls with their status events, page by page."""
        return self._read_pages(chat_id, TOOL_CALLS, _read_calls)

    async def _read_pages(
        self, chat_id: str, query: Query, read: Callable[[Rows, Connection], list[T]]
    ) -> AsyncIterator[list[T]]:
        await self._read_chat(chat_id, lambda _: None)
        async for page in self._database.pages(query.where(messages.c.chat_id == chat_id), [messages.c.id]):
            yield await self._database.read(partial(read, page))

    async def tool_call(self, chat_id: str, tool_call_id: str) -> StoredCall:
        """Return one call with its full result; raises `UnknownChat`, `UnknownToolCall`."""
        query = TOOL_CALLS.where(messages.c.chat_id == chat_id, messages.c.tool_call_id == tool_call_id)
        found = await self._read_chat(
            chat_id, lambda connection: _read_calls(connection.execute(query).all(), connection)
        )
        if not found:
            raise UnknownToolCall(f"there is no tool call {tool_call_id!r} in chat {chat_id!r}")
        return found[0]

    async def tool_calls(self, wanted: ToolCallFilter, limit: int, cursor: str | None = None) -> Page[StoredCall]:
        """Return a page of calls, newest first; raises `RequestError` for an invalid cursor."""
        query = TOOL_CALLS.join(chats).where(self._is_mine, *match_call(wanted))

        def read(connection: Connection) -> Page[StoredCall]:
            rows, next_cursor = read_page(connection, query, messages.c.id, limit, cursor)
            return Page(tuple(_read_calls(rows, connection)), next_cursor)

        return await self._database.read(read)

    async def chat_of_call(self, tool_call_id: str) -> str | None:
        """Return the chat id of a call, None if this user has no such call."""
        is_call = messages.c.tool_call_id == tool_call_id, messages.c.role == "tool"
        chat_id: str | None = await self._database.scalar(
            select(messages.c.chat_id).join(chats).where(*is_call, self._is_mine)
        )
        return chat_id

    async def chosen_model(self, chat_id: str) -> str | None:
        """Return the model that was chosen for a chat, None for the server's default; raises `UnknownChat`."""
        query = select(chats.c.model).where(chats.c.id == chat_id)
        return await self._read_chat(chat_id, lambda connection: connection.scalar(query))

    async def choose_model(self, chat_id: str, name: str | None) -> None:
        """Set the model of a chat's next runs, None for the server's default; raises `UnknownChat`."""
        choose = update(chats).where(chats.c.id == chat_id, self._is_mine).values(model=name)
        if not await self._database.execute(choose):
            raise unknown_chat(chat_id)

    async def delete(self, chat_id: str) -> None:
        """Delete a chat with its messages and calls; raises `UnknownChat`."""
        is_chat = and_(chats.c.id == chat_id, self._is_mine)
        if not await self._database.write(partial(_delete_some, is_chat)):
            raise unknown_chat(chat_id)

    async def delete_all(self, begun_before: float) -> int:
        """Delete the chats with a client's id that began before a time, in Unix seconds; return their number."""
        return await delete_chats(self._database, (chats.c.created_at < begun_before) & ~IS_OWN & self._is_mine)

    async def timeline(self, chat_id: str) -> list[StoredCall]:
        """Return every call with its status events, in the order they started; raises `UnknownChat`."""
        return [call async for page in self.timeline_pages(chat_id) for call in page]

    async def messages(self, chat_id: str) -> list[StoredMessage]:
        """Return every message, in the order it was written; raises `UnknownChat`."""
        return [message async for page in self.message_pages(chat_id) for message in page]

    async def replay(self, chat_id: str, messages: Sequence[ChatDict] | None = None) -> list[ChatDict]:
        """Return the chat for a model, as OpenAI's messages, with the stored calls and their results.

        `messages` are those that a client has. An answer without its calls is found by its text, a call by its id. By
        default they are all stored questions and answers in order, each answer of a question that was asked again too.
        Raises `UnknownChat` if the chat is another user's.
        """
        history = await self.history(chat_id, with_turns=True)
        sent = list(messages or ())
        for turn in history.turns if messages is None else ():
            # A turn that only brings results of the client's functions has no question.
            sent += [{"role": "user", "content": turn.question}] if turn.question else []
            sent += turn.as_messages()
        whole = insert_turns_by_text(sent, history.turns)
        return replay(whole, history.calls, questions=history.questions, said=history.said).messages


async def delete_chats(database: Database, condition: ColumnElement[bool]) -> int:
    """Delete the chats that meet a condition, with their contents, in batches; return their number."""
    return await database.write_in_batches(partial(_delete_some, condition))


def _delete_some(condition: ColumnElement[bool], connection: Connection) -> int:
    """Delete chats with their messages, response items, waiting runs, and the tools that are always allowed there."""
    ids = connection.scalars(select(chats.c.id).where(condition).limit(ROWS_AT_ONCE)).all()
    connection.execute(delete(chats).where(chats.c.id.in_(ids)))
    connection.execute(delete(response_items).where(response_items.c.chat_id.in_(ids)))
    connection.execute(delete(runs).where(runs.c.chat_id.in_(ids), WAITS))
    of_chats = func.substr(records.c.key, 1, DIGEST_CHARS).in_([digest(one) for one in ids])
    connection.execute(delete(records).where(records.c.namespace == GRANTS, of_chats))
    return len(ids)


def _read_messages(rows: Rows, connection: Connection) -> list[StoredMessage]:
    """Return messages from their rows; an assistant's message with the calls of its round."""
    columns = StoredMessage.__dataclass_fields__.keys() - {"tool_calls"}
    found = [StoredMessage(**{name: getattr(row, name) for name in columns}) for row in rows]
    # The calls of the last round may be on the next page.
    runs = {row.run_id for row in rows if row.role == "assistant" and row.round_index is not None}
    if not runs:
        return found
    of_runs = messages.c.chat_id == rows[0].chat_id, messages.c.run_id.in_(runs), messages.c.role == "tool"
    calls: Any = connection.execute(select(*CALL_COLUMNS).where(*of_runs).order_by(messages.c.id)).all()
    rounds = group_calls(calls)
    return [
        replace(message, tool_calls=rounds.get((message.run_id, message.round_index)))
        if message.role == "assistant"
        else message
        for message in found
    ]


def _read_lines(rows: Rows, connection: Connection) -> list[Line]:
    events = read_statuses(connection, rows)
    return [
        {**asdict(message), "events": [asdict(event) for event in events[row.id]]}
        if message.role == "tool"
        else asdict(message)
        for message, row in zip(_read_messages(rows, connection), rows, strict=True)
    ]


def _read_calls(rows: Rows, connection: Connection) -> list[StoredCall]:
    events = read_statuses(connection, rows)
    return [read_call(row, events[row.id]) for row in rows]


def read_statuses(connection: Connection, rows: Rows) -> defaultdict[int, list[StoredStatus]]:
    """Return the status events of calls, by row id."""
    of_rows = tool_events.c.tool_message_id.in_([row.id for row in rows])
    events: defaultdict[int, list[StoredStatus]] = defaultdict(list)
    for event in connection.execute(select(tool_events).where(of_rows).order_by(tool_events.c.id)):
        status = StoredStatus(event.status, event.message, event.progress, event.created_at)
        events[event.tool_message_id].append(status)
    return events
