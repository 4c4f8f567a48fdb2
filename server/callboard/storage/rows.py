"""Converts rows to values and values to columns; filters, cursors and excerpts. Pure: nothing here opens a database."""

import base64
import binascii
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter

from callboard._history import ChatHistory, HistoryCall
from callboard._history.records import StoredStatus, message_text
from callboard._openwebui.requests import strip_context
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
from callboard_protocol import ENDINGS, Done, Error, find_ending

ROWS_PER_PAGE = 100
MAX_NAMESPACE_CHARS = 64
MAX_KEY_CHARS = 255
MAX_VALUE_BYTES = 1024 * 1024
MAX_ROW_ID = 2**63 - 1
SUMMARY_CHARS = 2_000
"""The length to which lists truncate the arguments and the result of a call."""
QUESTION_CHARS = 50_000
"""The length to which lists read a question: Open WebUI usually puts less context than this before the user's text."""
EXCERPT_CHARS = 300
"""The approximate length of excerpts from past chats."""
FRESH_SECONDS_PER_USE = 7 * 86_400
INTERRUPTED_CALL = "The server stopped while this tool was running; whether it took effect is not known."
UNANSWERED_CALL = "Not run: the server stopped while its user was asked."
_ENDING: TypeAdapter[Done | Error] = TypeAdapter(Annotated[Done | Error, Field(discriminator="type")])
_TEXT_OF_PART = re.compile(r'"text": ("(?:[^"\\]|\\.)*")')
MAX_USES = 12
"""The most uses that count in the ranking of memories: each makes a memory rank as if it were a week newer."""


def unknown_chat(chat_id: str) -> UnknownChat:
    """Return the error for a chat that does not exist or is another user's; both look the same to the client."""
    return UnknownChat(f"there is no chat {chat_id!r} of this user")


def unknown_call(chat_id: str, tool_call_id: str) -> UnknownToolCall:
    """Return the error for a call that the chat does not contain."""
    return UnknownToolCall(f"there is no tool call {tool_call_id!r} in chat {chat_id!r}")


def read_history_call(row: Any) -> HistoryCall:
    """Return a call for replay: with its compacted result if it has one."""
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
    """Return the history of a chat from the rows of its calls and of its answers with provider details."""
    calls = tuple(read_history_call(row) for row in rows if row.role == "tool")
    answers = tuple((row.content or "", json.loads(row.provider_details)) for row in rows if row.role == "assistant")
    return ChatHistory(calls, answers, model)


def read_message(row: Any) -> StoredMessage:
    """Return a message from its row."""
    values = {name: getattr(row, name) for name in StoredMessage.__dataclass_fields__}
    return StoredMessage(**{**values, "tool_calls": json.loads(row.tool_calls) if row.tool_calls else None})


def read_call(row: Any, events: Sequence[StoredStatus]) -> StoredCall:
    """Return a call from its row and its status events."""
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
    """Return conditions that are all true if the call failed: SQL for a column, booleans for a value."""
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
    """Return conditions that are all true if a call matches: SQL for the columns of a table, booleans for a row."""
    return _compare(row, wanted, ("chat_id", "tool_name", "run_id", "agent_id"), row.started_at)


def compare_message(row: Any, wanted: ChatFilter) -> list[Any]:
    """Return conditions that are all true if a message makes its chat match; see `compare_call`."""
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
    """Return the cursor after a page of `limit` rows; None if `rows`, read with `limit + 1`, has no row beyond it."""
    return write_cursor_at(rows[limit - 1].id) if len(rows) > limit else None


def write_cursor_at(row_id: int) -> str:
    """Return the cursor that continues after this row."""
    return base64.urlsafe_b64encode(str(row_id).encode()).decode()


def read_cursor(cursor: str) -> int:
    """Return the row id in a cursor; raises `RequestError` if `write_cursor` cannot have made the cursor."""
    try:
        row_id = int(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error):
        row_id = 0
    if not 0 < row_id <= MAX_ROW_ID:
        raise RequestError("cursor: take it from next_cursor of the page before")
    return row_id


def interrupt_call(*, has_run: bool = True) -> dict[str, object]:
    """Return the columns that end a call which was open when its server stopped.

    `has_run` is False if the call was still waiting for the user's approval.
    """
    return {
        "tool_output": f"Error: {INTERRUPTED_CALL if has_run else UNANSWERED_CALL}",
        "error_code": "interrupted",
        "ended_at": time.time(),
    }


def check_namespace(namespace: str) -> None:
    """Raise `ValueError` if the namespace is empty, too long, or has characters that a database cannot store."""
    if not 0 < len(namespace) <= MAX_NAMESPACE_CHARS or storable(namespace) != namespace:
        raise ValueError(f"a namespace has 1 to {MAX_NAMESPACE_CHARS} characters, without NUL and lone surrogates")


def write_value(key: str, value: object) -> str:
    """Return a value as JSON; raises `ValueError` if the value or its key cannot be stored."""
    if not 0 < len(key) <= MAX_KEY_CHARS or storable(key) != key:
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters, without NUL and lone surrogates")
    try:
        # ASCII with escapes: lone surrogates and NUL, which databases refuse, are restored when the value is read.
        written = json.dumps(value, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the value of {key!r} cannot be written as JSON: {error}") from None
    if len(written) > MAX_VALUE_BYTES:
        raise ValueError(f"the value of {key!r} has more than {MAX_VALUE_BYTES:,} bytes as JSON")
    return written


def write_item(item: Item) -> str:
    """Return an item of a response as JSON."""
    return storable(json.dumps(item, ensure_ascii=False))


def summarise_call(row: Any, events: Sequence[StoredStatus]) -> CallSummary:
    """Return a call for a list; the row has `result_chars`, and its texts are already truncated."""
    return CallSummary(read_call(row, events), row.user_id, row.agent_id, row.result_chars or 0, row.user_name)


def choose_rank(count: int, percent: int) -> int:
    """Return the rank (from 1) of the percentile among `count` sorted values."""
    return max(1, -(-count * percent // 100))


def read_ending(written: str | None) -> Done | Error | None:
    """Return the last event of a run from its JSON."""
    return _ENDING.validate_json(written) if written else None


def read_question(content: str | None) -> str:
    """Return the user's text from a truncated message, without Open WebUI's context; skip incomplete parts."""
    text = content or ""
    if text.startswith("[{"):
        text = "\n".join(json.loads(part) for part in _TEXT_OF_PART.findall(text))
    return strip_context(text)


def show_question(content: str | None) -> str:
    """Return the beginning of the user's text in a message, without Open WebUI's context."""
    return excerpt(strip_context(message_text(content)), (), EXCERPT_CHARS)


def show_messages(rows: Iterable[Any], wanted: Sequence[Term], limit: int) -> list[SaidMessage]:
    """Return the found messages in order, without duplicates, which come from edited and regenerated messages."""
    once: dict[tuple[str, str, str], SaidMessage] = {}
    for row in rows:
        shown = excerpt(message_text(row.content), wanted, EXCERPT_CHARS)
        said = SaidMessage(row.chat_id, row.role, shown, row.created_at)
        once.setdefault((row.chat_id, row.role, shown), said)
    return list(once.values())[:limit]
