"""Helpers for tools: required arguments of an action, and times and names for models."""

from datetime import UTC, datetime
from typing import TypeVar

from callboard.errors import InvalidArguments
from callboard.text import storable

T = TypeVar("T")


def require(value: T | None, argument: str, action: str) -> T:
    """Return an argument that the action needs. Raises `InvalidArguments` if it is missing or blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InvalidArguments(f"The action '{action}' needs the argument '{argument}': give it and call again.")
    return value


def require_text(text: str | None, action: str) -> str:
    """Return the argument `text` in a form that can be stored. Raises `InvalidArguments` if it is missing or blank."""
    return storable(require(text, "text", action).strip())


def format_time(seconds: float) -> str:
    """Return a time in seconds since the epoch as ISO 8601 in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes").replace("+00:00", "Z")


def one_line(text: str, limit: int | None = None) -> str:
    """Return the text in one line, cut at `limit` characters."""
    line = " ".join(text.split())
    return line if limit is None or len(line) <= limit else f"{line[:limit].rstrip()}…"
