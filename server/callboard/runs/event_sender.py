"""Sends the events of one run in order: texts are redacted and joined, and collected for the store.

A source of an earlier turn is sent again, once, before the text that cites it, because clients know only the sources of
the current message.
"""

import asyncio
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from sys import getsizeof
from typing import Any

from callboard._history import RowChange
from callboard.redaction import RedactedStream, Redaction
from callboard.runs.limits import RunMemory
from callboard.sources import find_cited_numbers, source_number
from callboard.text import storable
from callboard_protocol import Event, Message, Rewind, Source, TextEvent, ToolCallArgsDelta

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


Piece = tuple[TextEvent, str]
"""An event, whose own text is ignored, and the redacted text to send in its place."""

COALESCE_SECONDS = 0.025
"""The shortest time between two text events; pieces that arrive sooner are joined."""


class EventSender:
    """Sends pieces of the answer, of reasoning and of arguments.

    Text is delayed by at most `COALESCE_SECONDS`; text that arrives slowly is sent immediately. Text that may be the
    beginning of a secret is held back until more text or another event follows. A source of an earlier turn is sent
    before the text that cites it, because clients only link sources that they know. Other events do not wait for
    arguments. If a call starts before its arguments are sent, only its start is sent, which has all arguments.

    `memory` counts the answer's text, which is collected for the store; None if the run is not stored.
    """

    def __init__(
        self, redaction: Redaction, sources: EarlierSources, send: Callable[..., None], memory: RunMemory | None
    ) -> None:
        self._redaction = redaction
        self._sources = sources
        self._send = send
        self._memory = memory
        self._held: dict[Hashable, tuple[TextEvent, RedactedStream]] = {}
        self._unstored: list[str] = []
        self._kept_count = 0
        self._has_sent_removable = False
        self._texts: list[Piece] = []
        self._arguments: list[Piece] = []
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, event: TextEvent) -> None:
        """Write the next piece of a text."""
        for stream, (other, _) in tuple(self._held.items()):
            # Streams of arguments of parallel calls do not end each other.
            if other.type != event.type or (stream != event.stream and isinstance(event, Message)):
                self._release(stream)
        _, redacted = self._held.setdefault(event.stream, (event, self._redaction.stream()))
        self._forward(event, redacted.feed(storable(event.text)))

    def flush(self) -> None:
        """Send all text and all arguments that are held back."""
        for stream in tuple(self._held):
            self._release(stream)
        self._send_delayed()

    def flush_text(self) -> None:
        """Send all text that is held back: another event follows it."""
        for stream, (event, _) in tuple(self._held.items()):
            if not isinstance(event, ToolCallArgsDelta):
                self._release(stream)
        self._send_pieces(self._texts)

    def send_after_text(self, event: Event, changes: Sequence[RowChange] = ()) -> None:
        """Send all text that is held back, then another event with its row changes."""
        self.flush_text()
        self._send(event, changes)

    def drop_arguments(self, tool_call_id: str) -> None:
        """Drop the arguments of a call that are held back, because the call starts."""
        stream = ToolCallArgsDelta(tool_call_id=tool_call_id, delta="").stream
        self._held.pop(stream, None)
        self._arguments = [(event, piece) for event, piece in self._arguments if event.stream != stream]

    def keep_text(self) -> None:
        """Make the text so far permanent, because a call has started or ended; `rewind` does not remove it."""
        self._kept_count = len(self._unstored)
        self._has_sent_removable = False

    def rewind(self) -> None:
        """Remove the text since `keep_text`; send a `Rewind` if listeners have seen a part of it."""
        self._remove_text(self._kept_count)
        self._held.clear()
        self._texts.clear()
        self._arguments.clear()
        if self._has_sent_removable:
            self._has_sent_removable = False
            self._send(Rewind())

    def restore(self, text: str) -> None:
        """Add text that another server has sent, and that has no row yet; `rewind` does not remove it."""
        self._collect_text(text)
        self.keep_text()

    def take_answer(self) -> str:
        """Return the answer's text since the last call of this method, for the store."""
        # Redact the whole text again: reasoning may have separated two halves of a secret.
        text = self._redaction("".join(self._unstored))
        self._remove_text(0)
        self._kept_count = 0
        return text

    def _collect_text(self, text: str) -> None:
        if self._memory:
            self._unstored.append(text)
            self._memory.add(getsizeof(text))

    def _remove_text(self, first: int) -> None:
        """Remove the pieces of the answer's text from number `first` on."""
        size_bytes = sum(map(getsizeof, self._unstored[first:]))
        del self._unstored[first:]
        if self._memory:
            self._memory.add(-size_bytes)

    def _release(self, stream: Hashable) -> None:
        event, redacted = self._held.pop(stream)
        self._forward(event, redacted.flush())

    def _forward(self, event: TextEvent, text: str) -> None:
        if not text:
            return
        if isinstance(event, Message):
            for source in self._sources.take_cited(text):
                self._send_pieces(self._texts)
                self._send(source)
        (self._arguments if isinstance(event, ToolCallArgsDelta) else self._texts).append((event, text))
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait = self._sent_at + COALESCE_SECONDS - loop.time()
            if wait <= 0:
                self._send_delayed()
            else:
                self._timer = loop.call_later(wait, self._send_delayed)

    def _send_delayed(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        self._send_pieces(self._texts)
        self._send_pieces(self._arguments)

    def _send_pieces(self, pieces: list[Piece]) -> None:
        sent = pieces.copy()
        pieces.clear()
        for _, neighbours in groupby(sent, key=lambda piece: piece[0].stream):
            events, texts = zip(*neighbours, strict=True)
            self._has_sent_removable = True
            joined = events[0].with_text("".join(texts))
            if isinstance(joined, Message):
                # Not each piece of it: a token takes ten times the memory of its characters.
                self._collect_text(joined.text)
            self._send(joined)
        self._sent_at = asyncio.get_running_loop().time()
