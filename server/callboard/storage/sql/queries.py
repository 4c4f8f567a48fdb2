"""Parts that several queries share: conditions of filters, cursors and pages, and the chats of one user."""

import base64
import json
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, select, true

from callboard.errors import RequestError, UnknownChat
from callboard.storage.sql.database import Database, Query, Rows, T, Work
from callboard.storage.sql.tables import chats, messages
from callboard.storage.values import ANY_USER, CallState, ToolCallFilter
from callboard_protocol.endings import ENDINGS

MAX_ROW_ID = 2**63 - 1
INVALID_CURSOR = "cursor: take it from next_cursor of the page before"

IS_CALL = messages.c.role == "tool"
IS_FAILURE = and_(
    messages.c.error_code.is_not(None),
    messages.c.error_code.not_in([code for code, ending in ENDINGS.items() if not ending.is_failure]),
)
"""The call failed: calls that were declined or stopped did not."""


def _match_fields(at: ColumnElement[float], wanted: ToolCallFilter, names: Sequence[str]) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter for the columns `names` and the time `at`."""
    conditions = [messages.c[name] == value for name in names if (value := getattr(wanted, name)) is not None]
    if wanted.since is not None:
        conditions.append(at >= wanted.since)
    if wanted.until is not None:
        conditions.append(at < wanted.until)
    return conditions


def match_call(wanted: ToolCallFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter for calls, without its `text`."""
    names = ("chat_id", "tool_name", "agent_id")
    return [*_match_fields(messages.c.started_at, wanted, names), *_match_state(wanted.status)]


def match_message(wanted: ToolCallFilter) -> list[ColumnElement[bool]]:
    """Return the conditions for a message that makes its chat match, without the `text` of the filter."""
    conditions = _match_fields(messages.c.created_at, wanted, ("tool_name", "agent_id"))
    return [*conditions, IS_CALL, *_match_state(wanted.status)] if wanted.status else conditions


def _match_state(state: CallState | None) -> list[ColumnElement[bool]]:
    match state:
        case None:
            return []
        case "running":
            return [messages.c.ended_at.is_(None)]
        case "complete":
            return [messages.c.ended_at.is_not(None), messages.c.error_code.is_(None)]
        case "error":
            return [IS_FAILURE]
        case _:
            return [messages.c.error_code.in_([code for code, ending in ENDINGS.items() if ending.state == state])]


def write_cursor(place: int | Sequence[object]) -> str:
    """Return the cursor of the page that begins after a row, which is given by its id or by other values."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def read_cursor(cursor: str) -> int:
    """Return the row id in a cursor; raises `RequestError` if `write_cursor` cannot have made the cursor."""
    try:
        row_id = int(base64.urlsafe_b64decode(cursor.encode()))
    except ValueError:
        row_id = 0
    if not 0 < row_id <= MAX_ROW_ID:
        raise RequestError(INVALID_CURSOR)
    return row_id


def read_page(
    connection: Connection,
    query: Query,
    row_id: ColumnElement[int],
    limit: int,
    cursor: str | None,
    *,
    is_oldest_first: bool = False,
) -> tuple[Rows, str | None]:
    """Return `limit` rows of a query, ordered by `row_id`, and the cursor of the next page, None on the last page.

    `row_id` is the column `id` of the rows. Raises `RequestError` for an invalid cursor.
    """
    if cursor is not None:
        last = read_cursor(cursor)
        query = query.where(row_id > last if is_oldest_first else row_id < last)
    ordered = query.order_by(row_id if is_oldest_first else row_id.desc())
    rows = connection.execute(ordered.limit(limit + 1)).all()
    return rows[:limit], write_cursor(rows[limit - 1].id) if len(rows) > limit else None


def is_owned_by(owner: ColumnElement[str | None], user_id: object) -> ColumnElement[bool]:
    """Return the condition that a row is this user's; it is true for `ANY_USER`."""
    return true() if user_id is ANY_USER else owner == user_id


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
