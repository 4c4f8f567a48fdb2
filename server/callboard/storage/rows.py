"""What every store does with rows of its tables: reads them as values, narrows, pages and shows them. Pure.

Where a row is kept does not matter, as long as it has the columns' names.
"""

import base64
import binascii
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, cast

from callboard._history import ChatHistory, HistoryCall, NewResponse
from callboard._history.records import StoredStatus, message_text
from callboard._text import storable
from callboard.errors import RequestError, UnknownChat, UnknownToolCall
from callboard.storage.values import (
    AuditEntry,
    CallState,
    CallSummary,
    ChatFilter,
    Item,
    Line,
    SaidMessage,
    StoredCall,
    StoredMessage,
    ToolCallFilter,
)
from callboard.storage.words import Term, excerpt
from callboard_protocol import ENDINGS, find_ending

ROWS_PER_PAGE = 100
MAX_NAMESPACE_CHARS = 64
MAX_KEY_CHARS = 255
MAX_VALUE_BYTES = 1024 * 1024
MAX_ROW_ID = 2**63 - 1
SUMMARY_CHARS = 2_000
"""Of a call's arguments, and of its result, in a list."""
EXCERPT_CHARS = 300
"""The characters, roughly, that are shown of what was said in a past chat."""
FRESH_SECONDS_PER_USE = 7 * 86_400
INTERRUPTED_CALL = "The server stopped while this tool was running; whether it took effect is not known."
UNANSWERED_CALL = "Not run: the server stopped while its user was asked."
MAX_USES = 12
"""The most uses that count where the first places are few: each makes a memory a week younger, three months in all."""


def unknown_chat(chat_id: str) -> UnknownChat:
    """Return the one answer for a chat that does not exist and for a chat of somebody else."""
    return UnknownChat(f"there is no chat {chat_id!r} of this user")


def unknown_call(chat_id: str, tool_call_id: str) -> UnknownToolCall:
    """Return the answer for a call that is not in its chat."""
    return UnknownToolCall(f"there is no tool call {tool_call_id!r} in chat {chat_id!r}")


def read_history_call(row: Any) -> HistoryCall:
    """Return a call as it is replayed."""
    return HistoryCall(
        tool_call_id=row.tool_call_id,
        tool_name=row.tool_name or "",
        arguments=row.arguments or "",
        round_index=row.round_index or 0,
        sequence_index=row.sequence_index or 0,
        details=json.loads(row.provider_details or "{}"),
        message_id=row.message_id,
        result=row.tool_output if row.replay_output is None else row.replay_output,
        parent_call_id=row.parent_call_id,
    )


def read_history(rows: Sequence[Any], model: str | None) -> ChatHistory:
    """Return the history of a chat: from the rows of its calls, and of its answers that have provider details."""
    calls = tuple(read_history_call(row) for row in rows if row.role == "tool")
    answers = tuple((row.content or "", json.loads(row.provider_details)) for row in rows if row.role == "assistant")
    return ChatHistory(calls, answers, model)


def read_message(row: Any) -> StoredMessage:
    """Return a message as it is read."""
    values = {name: getattr(row, name) for name in StoredMessage.__dataclass_fields__}
    return StoredMessage(**{**values, "tool_calls": json.loads(row.tool_calls) if row.tool_calls else None})


def read_call(row: Any, events: Sequence[StoredStatus]) -> StoredCall:
    """Return a call with everything that is known of it."""
    return StoredCall(
        tool_call_id=row.tool_call_id,
        chat_id=row.chat_id,
        message_id=row.message_id,
        run_id=row.run_id,
        tool_name=row.tool_name,
        arguments=row.arguments,
        result=row.tool_output,
        status=name_state(row.ended_at, row.error_code),
        error_code=row.error_code,
        round_index=row.round_index,
        sequence_index=row.sequence_index,
        started_at=row.started_at,
        ended_at=row.ended_at,
        duration_ms=row.duration_ms,
        events=tuple(events),
        parent_call_id=row.parent_call_id,
    )


def name_state(ended_at: float | None, error_code: str | None) -> CallState:
    """Return the state of a call."""
    if ended_at is None:
        return "running"
    return "complete" if error_code is None else cast("CallState", find_ending(error_code).state)


def is_failure(error_code: Any) -> list[Any]:
    """Return what must be true of the code of a call that failed: of a value booleans, of a column SQL."""
    nothing = None
    return [error_code != nothing, *(error_code != code for code, end in ENDINGS.items() if not end.is_failure)]


def write_line(message: StoredMessage, events: Sequence[StoredStatus]) -> Line:
    """Return a message as a line of an export."""
    line = asdict(message)
    return {**line, "events": [asdict(event) for event in events]} if message.role == "tool" else line


def write_audit_line(entry: AuditEntry) -> Line:
    """Return an entry of the audit as a line of an export."""
    return {**asdict(entry), "kind": "audit", "event": entry.kind}


def compare_call(row: Any, wanted: ToolCallFilter) -> list[Any]:
    """Return what must be true of a call that is wanted: of a row booleans, of the table's columns SQL."""
    return _compare(row, wanted, ("chat_id", "tool_name", "run_id", "agent_id"), row.started_at)


def compare_message(row: Any, wanted: ChatFilter) -> list[Any]:
    """Return what must be true of a message so that its chat is wanted, as `compare_call` does."""
    conditions = _compare(row, wanted, ("tool_name", "agent_id"), row.created_at)
    if wanted.status is not None:
        conditions.append(row.role == "tool")
    return conditions


def _compare(row: Any, wanted: ToolCallFilter | ChatFilter, equal: Sequence[str], began_at: Any) -> list[Any]:
    nothing = None
    conditions = [getattr(row, name) == value for name in equal if (value := getattr(wanted, name)) is not None]
    if wanted.since is not None:
        conditions.append(began_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(began_at < wanted.until)
    match wanted.status:
        case "running":
            conditions.append(row.ended_at == nothing)
        case "complete":
            conditions += [row.ended_at != nothing, row.error_code == nothing]
        case "error":
            conditions += is_failure(row.error_code)
        case None:
            pass
        case state:
            conditions += [row.error_code == code for code, end in ENDINGS.items() if end.state == state]
    return conditions


def write_cursor(rows: Sequence[Any], limit: int) -> str | None:
    """Return where a page of `limit` rows ends, as clients send it back; None where these are all that there are."""
    return write_cursor_at(rows[limit - 1].id) if len(rows) > limit else None


def write_cursor_at(row_id: int) -> str:
    """Return a row as clients send it back, to go on from there."""
    return base64.urlsafe_b64encode(str(row_id).encode()).decode()


def read_cursor(cursor: str) -> int:
    """Return the row where a page of calls ended; raises `RequestError` for what is no cursor of ours."""
    try:
        row_id = int(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error):
        row_id = 0
    if not 0 < row_id <= MAX_ROW_ID:
        raise RequestError("cursor: take it from next_cursor of the page before")
    return row_id


def interrupt_call(*, has_run: bool = True) -> dict[str, object]:
    """Return the columns of a call that was running, or waiting for its user, when the server stopped."""
    return {
        "tool_output": f"Error: {INTERRUPTED_CALL if has_run else UNANSWERED_CALL}",
        "error_code": "interrupted",
        "ended_at": time.time(),
    }


def check_namespace(namespace: str) -> None:
    """Raise `ValueError` for a namespace that cannot be one."""
    if not 0 < len(namespace) <= MAX_NAMESPACE_CHARS or storable(namespace) != namespace:
        raise ValueError(f"a namespace has 1 to {MAX_NAMESPACE_CHARS} characters, all of which can be written down")


def write_value(key: str, value: object) -> str:
    """Return a value as JSON; raises `ValueError` where it, or its key, cannot be kept."""
    if not 0 < len(key) <= MAX_KEY_CHARS or storable(key) != key:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters, all of which can be written down")
    try:
        # As ASCII, every text that Python can hold comes back as it was.
        written = json.dumps(value, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the value of {key!r} is nothing that JSON can hold: {error}") from None
    if len(written) > MAX_VALUE_BYTES:
        raise ValueError(f"the value of {key!r} has more than {MAX_VALUE_BYTES:,} bytes as JSON")
    return written


def write_brought(response: NewResponse) -> str:
    """Return the messages that a response's request brought, as JSON."""
    return json.dumps(list(response.brought), ensure_ascii=False)


def write_item(item: Item) -> str:
    """Return an item of a response as JSON."""
    return storable(json.dumps(item, ensure_ascii=False))


def summarise_call(row: Any, events: Sequence[StoredStatus]) -> CallSummary:
    """Return a call as a list shows it; the row has `result_chars`, and its texts are cut already."""
    return CallSummary(read_call(row, events), row.user_id, row.agent_id, row.result_chars or 0)


def choose_rank(count: int, percent: int) -> int:
    """Return which of `count` values, counted from 1 in their order, `percent` of them do not exceed."""
    return max(1, -(-count * percent // 100))


def show_message(content: str | None, wanted: Sequence[Term] = ()) -> str:
    """Return an excerpt of what a message says, around what is wanted of it."""
    return excerpt(message_text(content), wanted, EXCERPT_CHARS)


def show_messages(rows: Iterable[Any], wanted: Sequence[Term], limit: int) -> list[SaidMessage]:
    """Return the messages that were found, best first, each once: edited and regenerated ones stand there again."""
    once: dict[tuple[str, str, str], SaidMessage] = {}
    for row in rows:
        shown = show_message(row.content, wanted)
        said = SaidMessage(row.chat_id, row.role, shown, row.created_at)
        once.setdefault((row.chat_id, row.role, shown), said)
    return list(once.values())[:limit]
