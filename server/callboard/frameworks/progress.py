"""The progress of a tool, as frameworks let their tools say it: in objects of any form."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from callboard.calls import StatusReport, report_status

STATUS = "processing"
MESSAGES = ("message", "description", "text", "content", "status", "step", "stage")
PERCENTAGES = ("progress", "percent", "percentage")
BOOKKEEPING = frozenset(
    {"created_at", "event", "agent_id", "agent_name", "team_id", "team_name", "run_id", "parent_run_id", "session_id"}
    | {"tool_call_id", "tool_name", "event_kind", "workflow_id", "workflow_run_id", "step_id", "step_name", "type"}
    | {"nested_depth", "parent_tool_call_id", "name", "id"}
)


def report_progress(told: object) -> None:
    """Report what a tool tells of itself, for the call that is running."""
    step = report_of(told)
    report_status(step.status, step.message, step.progress)


def report_of(told: object) -> StatusReport:
    """Return what a tool tells of itself: words and percentage where they have usual names, else all of it as JSON."""
    if isinstance(told, str):
        return StatusReport(STATUS, told)
    fields = {name: value for name, value in _fields(told).items() if value is not None and name not in BOOKKEEPING}
    progress = next((_percentage(fields.pop(name)) for name in PERCENTAGES if name in fields), None)
    message = next((str(fields[name]) for name in MESSAGES if isinstance(fields.get(name), str)), None)
    if message is None:
        message = to_json(fields, serialize_unknown=True).decode() if fields else ""
    return StatusReport(STATUS, message, progress)


def _fields(told: object) -> Mapping[str, Any]:
    match told:
        case Mapping():
            return told
        case BaseModel():
            return told.model_dump()
        case _ if is_dataclass(told) and not isinstance(told, type):
            return {**asdict(told), **vars(told)} if hasattr(told, "__dict__") else asdict(told)
        case _:
            return {"value": told}


def _percentage(value: object) -> float | None:
    """Return a number from 0 to 100; a fraction up to 1.0 is taken for a share of 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return value * 100 if isinstance(value, float) and value <= 1 else float(value)
