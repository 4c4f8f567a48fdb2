"""Parts that several queries share: conditions of filters, cursors and pages, and the chats of one user."""

import base64
import json
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, select

from callboard.errors import RequestError
from callboard.storage.sql.database import Query, Rows
from callboard.storage.sql.tables import messages, tool_events
from callboard.storage.values import CallState, ToolCallFilter
from callboard_protocol.endings import ENDINGS
from callboard_protocol.events import WAITING_STATUSES

MAX_ROW_ID = 2**63 - 1
INVALID_CURSOR = "cursor: take it from next_cursor of the page before"

IS_CALL = messages.c.role == "tool"
IS_FAILURE = and_(
    messages.c.error_code.is_not(None),
    messages.c.error_code.not_in([code for code, ending in ENDINGS.items() if not ending.is_failure]),
)
"""The call failed: calls that were declined or stopped did not."""

_LAST_STATUS = (
    select(tool_events.c.status)
    .where(tool_events.c.tool_message_id == messages.c.id)
    .order_by(tool_events.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
IS_WAITING = and_(IS_CALL, messages.c.ended_at.is_(None), func.coalesce(_LAST_STATUS, "").in_(WAITING_STATUSES))
"""The call has not ended, and its user is asked."""


def match_call(wanted: ToolCallFilter) -> list[ColumnElement[bool]]:
    """Return the conditions of a filter for calls, without its `text`."""
    names = ("chat_id", "tool_name", "agent_id")
    conditions = [messages.c[name] == value for name in names if (value := getattr(wanted, name)) is not None]
    if wanted.since is not None:
        conditions.append(messages.c.started_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(messages.c.started_at < wanted.until)
    return [*conditions, *_match_state(wanted.status)]


def _match_state(state: CallState | None) -> list[ColumnElement[bool]]:
    match state:
        case None:
            return []
        case "running":
            return [messages.c.ended_at.is_(None), ~IS_WAITING]
        case "waiting":
            return [IS_WAITING]
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
