"""Numbered sources in tool results, which an answer cites as `[source1]`.

A result has sources if it is a JSON list in which at least one object has a `source_number`: an integer, or a text of
digits. Imports nothing of Callboard.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_STRUCTURED_CHARS = 2 * 1024 * 1024
"""Longer results are treated as plain text: parsing them would block other requests."""

# [source1], [Source 1], [source1, source2], 【source1】. At most nine digits, so that int() is fast on any text.
_CITATION = re.compile(
    r"[\[【]\s*+(sources?\s*+\d{1,9}(?:\s*+[,;]\s*+(?:sources?\s*+)?\d{1,9})*+)\s*+[\]】]", re.IGNORECASE
)
_NUMBER = re.compile(r"\d+")


def find_cited_numbers(text: str) -> frozenset[int]:
    """Return the source numbers that `text` cites."""
    return frozenset(int(number) for citation in _CITATION.finditer(text) for number in _NUMBER.findall(citation[1]))


def source_number(item: object) -> int | None:
    """Return the number of a source; None if `item` is not a source."""
    number = item.get("source_number") if isinstance(item, Mapping) else None
    if isinstance(number, int) and not isinstance(number, bool):
        return number if number >= 0 else None
    if isinstance(number, str) and len(number) <= 9 and number.isascii() and number.isdigit():
        return int(number)
    return None


def read_sources(content: str) -> list[Any] | None:
    """Return all items of a result that has sources; None if `content` is any other text."""
    if len(content) > MAX_STRUCTURED_CHARS or not content.lstrip().startswith("["):
        return None
    try:
        items = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(items, list) and any(source_number(item) is not None for item in items):
        return items
    return None
