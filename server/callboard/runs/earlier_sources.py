"""Finds sources of earlier turns that an answer cites, to send them again. Pure.

Clients know only the sources of the current message. Each source is sent once, before the text that cites it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from callboard.sources import find_cited_numbers, source_number
from callboard.text import storable
from callboard_protocol import Event, Source

EXCERPT_CHARS = 500
MAX_CITATION_CHARS = 300
"""The longest citation; a bracket that stays open longer is plain text."""

_NAMES = ("title", "name")
_ADDRESSES = ("url", "link", "href")
_TEXTS = ("snippet", "content", "text", "body", "description", "summary")
_OPEN_BRACKET = re.compile(r"[\[【][^\[【\]】]*\Z")


class EarlierSources:
    """The sources of earlier turns that were not sent in this turn, by number."""

    def __init__(self) -> None:
        self._unsent: dict[int, Any] = {}
        self._sent_numbers: set[int] = set()
        self._open_bracket = ""

    def add(self, sources: Mapping[int, Any]) -> None:
        """Add sources by their numbers, except numbers that this turn has sent."""
        self._unsent.update((number, item) for number, item in sources.items() if number not in self._sent_numbers)

    def exclude_sent(self, event: Event) -> None:
        """Remove the sources whose numbers a `Source` event of the agent uses; ignore other events."""
        if not isinstance(event, Source):
            return
        for about in event.metadata:
            if (number := source_number(about)) is not None:
                self._sent_numbers.add(number)
                self._unsent.pop(number, None)

    def take_cited(self, text: str) -> list[Source]:
        """Remove and return the sources that the next piece of the answer cites, in the order of their numbers."""
        if not self._unsent:
            return []
        text = self._open_bracket + text
        opened = _OPEN_BRACKET.search(text, max(0, len(text) - MAX_CITATION_CHARS))
        self._open_bracket = opened[0] if opened else ""
        return [
            _make_source(number, self._unsent.pop(number))
            for number in sorted(find_cited_numbers(text) & self._unsent.keys())
        ]


def _make_source(number: int, item: Mapping[str, Any]) -> Source:
    """Return the event for a source; tools use different names for its fields."""
    url = _find_first(item, _ADDRESSES)
    name = _find_first(item, _NAMES) or url or f"Source {number}"
    document = _find_first(item, _TEXTS) or json.dumps(item, ensure_ascii=False)
    about = {"source": url or f"source{number}", "name": name, "source_number": number}
    return Source(
        source={"name": name, **({"url": url} if url else {})},
        document=(storable(document[:EXCERPT_CHARS]),),
        metadata=(about,),
    )


def _find_first(item: Mapping[str, Any], names: tuple[str, ...]) -> str:
    texts = (item.get(name) for name in names)
    return next((storable(text.strip()) for text in texts if isinstance(text, str) and text.strip()), "")
