"""Converts rows of messages and calls to values."""

import json
from collections.abc import Sequence
from typing import Any, cast

from callboard._history import HistoryCall
from callboard._history.turns import StoredStatus
from callboard.storage.values import CallState, StoredCall
from callboard_protocol.endings import find_ending
from callboard_protocol.events import WAITING_STATUSES

INTERRUPTED_CALL = "The server stopped while this tool was running; whether it took effect is not known."
UNANSWERED_CALL = "Not run: the answer was interrupted while the user was asked."


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


def read_call(row: Any, events: Sequence[StoredStatus]) -> StoredCall:
    """Return a call from its row and its status events."""
    columns = StoredCall.__dataclass_fields__.keys() - {"result", "status", "events"}
    status: CallState = "waiting" if events and events[-1].status in WAITING_STATUSES else "running"
    if row.ended_at is not None:
        status = "complete" if row.error_code is None else cast("CallState", find_ending(row.error_code).state)
    shared = {name: getattr(row, name) for name in columns}
    return StoredCall(**shared, result=row.tool_output, status=status, events=tuple(events))
