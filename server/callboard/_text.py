"""Text that everything down the line can hold, text that is cut, and values as lines of text."""

import json
from math import isfinite
from typing import Any


def storable(text: str) -> str:
    """Return `text` with U+FFFD in the place of what UTF-8 (lone surrogates) or PostgreSQL (NUL) cannot hold."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def storable_value(value: Any) -> Any:
    """Return a value of JSON's kinds with every text in it as `storable` has it, and null for NaN and infinity."""
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
    """Return a value of JSON's kinds as a line of JSON.

    ASCII, for U+2028 and U+0085 end a line to many programs, and not every output takes every character.
    """
    return f"{json.dumps(value)}\n"


def cut_note(shown: str, whole_chars: int) -> str:
    """Return `shown`, with a line on what is missing where that is not all."""
    missing = whole_chars - len(shown)
    return f"{shown}\n… [{missing:,} more characters]" if missing > 0 else shown
