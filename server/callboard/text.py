"""Text without characters that UTF-8 or PostgreSQL cannot store, notes on truncation, and JSON lines."""

import json
import re
from math import isfinite
from typing import Any

_ESCAPE = re.compile(
    rb"""
    \\\\ | \\u [dD][89abAB][0-9a-fA-F]{2} \\u [dD][c-fC-F][0-9a-fA-F]{2} | (?P<lone> \\u [dD][89a-fA-F][0-9a-fA-F]{2} )
    """,
    re.VERBOSE,
)


def storable(text: str) -> str:
    """Return `text` with U+FFFD for lone surrogates, which UTF-8 cannot encode, and NUL, which PostgreSQL refuses."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def storable_json(text: bytes) -> bytes:
    """Return JSON text with U+FFFD for lone surrogates, which JavaScript writes when it cuts a text between two halves.

    `text` may be a part of the JSON text if it does not split an escape sequence.
    """
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match["lone"] else match[0], text)


def storable_value(value: Any) -> Any:
    """Return a JSON value with every text in it `storable`, and null instead of NaN and infinity."""
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable_value(key): storable_value(one) for key, one in value.items()}
        case list() | tuple():
            return type(value)(map(storable_value, value))
        case float():
            return value if isfinite(value) else None
        case _:
            return value


def write_json_line(value: Any) -> str:
    """Return a JSON value as a line of ASCII.

    Many programs end a line at U+2028 and U+0085, and some outputs lack some characters.
    """
    return f"{json.dumps(value)}\n"


def cut_note(shown: str, whole_chars: int) -> str:
    """Return `shown`; if it is not the whole text, with a line about the number of missing characters."""
    missing = whole_chars - len(shown)
    return f"{shown}\n… [{missing:,} more characters]" if missing > 0 else shown
