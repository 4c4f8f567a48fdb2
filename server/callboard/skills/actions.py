"""Helpers for tools with several actions: required arguments, and times for models."""

from datetime import UTC, datetime
from typing import TypeVar

from callboard._text import storable
from callboard.errors import InvalidArguments

T = TypeVar("T")


def require(value: T | None, argument: str, action: str) -> T:
    """Return an argument that the action needs. Raises `InvalidArguments` if it is missing or blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise missing_argument(argument, action)
    return value


def require_text(text: str | None, action: str) -> str:
    """Return the argument `text` in a form that can be stored. Raises `InvalidArguments` if it is missing or blank."""
    return storable(require(text, "text", action).strip())


def missing_argument(argument: str, action: str) -> InvalidArguments:
    """Return the error for a call of that action without that argument."""
    return InvalidArguments(f"The action '{action}' needs the argument '{argument}': give it and call again.")


def format_time(seconds: float) -> str:
    """Return a time in seconds since the epoch as ISO 8601 in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")
