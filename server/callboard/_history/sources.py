"""Numbered sources in tool results, which an answer cites as `[sourceN]`, and their compaction. Pure.

A result has sources if it is a JSON list in which at least one object has a `source_number`: an integer, or a text of
digits. Compaction drops the sources that the answer does not cite.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from callboard._history.records import HistoryCall

NOTHING_CITED = "The search did not produce any relevant information that could be cited."

CompactResults = Literal["cited", "always", "never"]
"""The results whose uncited sources are dropped: results with at least one cited source, all results, or none."""

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


def compact_message_tools(
    calls: Sequence[HistoryCall], assistant_text: str | None, compact_results: CompactResults = "cited"
) -> list[HistoryCall]:
    """Return the calls of a turn with results as they will be replayed, given the turn's whole text.

    A result with sources keeps the sources that the text cites (`[source1]`, `[Source 1]`, `[source1, source2]`,
    `【source1】`) and the items that are not sources. Numbers do not change. With "cited", a result without any cited
    source is not changed, because some models do not cite. With "always" it becomes `[]`, or `NOTHING_CITED` if the
    text cites nothing at all. Results without sources are not changed, nor is any result if there is no text.
    """
    if not assistant_text or compact_results == "never":
        return list(calls)
    cited = find_cited_numbers(assistant_text)
    return [
        call if call.result is None else replace(call, result=compact_result(call.result, cited, compact_results))
        for call in calls
    ]


def compact_result(content: str, cited: frozenset[int], compact_results: CompactResults = "cited") -> str:
    """Return a result without the sources whose numbers are not in `cited`; the same text if nothing is dropped."""
    items = read_sources(content)
    if items is None:
        return content
    if compact_results == "cited" and not any(source_number(item) in cited for item in items):
        return content
    kept = [item for item in items if (number := source_number(item)) is None or number in cited]
    if len(kept) == len(items):
        return content
    if not kept and not cited:
        return NOTHING_CITED
    return json.dumps(kept, ensure_ascii=False)
