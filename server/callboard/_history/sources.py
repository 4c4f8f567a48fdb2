"""Compaction of tool results: drops the sources that the answer does not cite. Pure."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from callboard._history.turns import HistoryCall
from callboard.sources import find_cited_numbers, read_sources, source_number

NOTHING_CITED = "The search did not produce any relevant information that could be cited."

CompactResults = Literal["cited", "always", "never"]
"""The results whose uncited sources are dropped: results with at least one cited source, all results, or none."""


def compact_message_tools(
    calls: Sequence[HistoryCall], assistant_text: str | None, compact_results: CompactResults
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


def compact_result(content: str, cited: frozenset[int], compact_results: CompactResults) -> str:
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
