"""Converts the progress that a framework's tool reports, in objects of any form, to a status of its call."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel

from callboard.calls import StatusReport, report_status
from callboard.frameworks.turn import to_text

STATUS = "processing"
BOOKKEEPING = frozenset(
    {"created_at", "event", "agent_id", "agent_name", "team_id", "team_name", "run_id", "parent_run_id", "session_id"}
    | {"tool_call_id", "tool_name", "event_kind", "workflow_id", "workflow_run_id", "step_id", "step_name", "type"}
    | {"nested_depth", "parent_tool_call_id", "name", "id"}
)


def report_progress(progress: object) -> None:
    """Report the progress of a tool as the status of the running call."""
    step = to_status_report(progress)
    report_status(step.status, step.message, step.progress)


def to_status_report(value: object) -> StatusReport:
    """Convert a tool's progress: the fields `message` and `progress`; without a message, all fields as JSON."""
    if isinstance(value, str):
        return StatusReport(STATUS, value)
    fields = {name: field for name, field in _fields(value).items() if field is not None and name not in BOOKKEEPING}
    progress = _percentage(fields.pop("progress", None))
    message = fields.get("message")
    return StatusReport(STATUS, message if isinstance(message, str) else to_text(fields or None), progress)


def _fields(value: object) -> Mapping[str, Any]:
    match value:
        case Mapping():
            return value
        case BaseModel():
            return value.model_dump()
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {**asdict(value), **vars(value)} if hasattr(value, "__dict__") else asdict(value)
        case _:
            return {"value": value}


def _percentage(value: object) -> float | None:
    """Return a number from 0 to 100. A float up to 1.0 is a fraction and is multiplied by 100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return value * 100 if isinstance(value, float) and value <= 1 else float(value)
