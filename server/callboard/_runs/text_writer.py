"""Redacts and joins the texts of one run, sends them as events, and collects the answer's text for the store."""

from collections.abc import Callable, Hashable, Sequence

from callboard._history import RowChange
from callboard._redaction import RedactedStream, Redaction
from callboard._runs.delta_coalescer import DeltaCoalescer
from callboard._runs.earlier_sources import EarlierSources
from callboard._text import storable
from callboard.storage import AuditEntry
from callboard_protocol import Event, Message, Rewind, TextEvent


class TextWriter:
    """Sends pieces of the answer, of reasoning and of arguments.

    Text that may be the beginning of a secret is held back until more text or another event follows. A source of an
    earlier turn is sent before the text that cites it, because clients only link sources that they know.
    """

    def __init__(self, redaction: Redaction, sources: EarlierSources, send: Callable[..., None]) -> None:
        self._redaction = redaction
        self._sources = sources
        self._send = send
        self._coalescer = DeltaCoalescer(self._send_piece)
        self._held: dict[Hashable, tuple[TextEvent, RedactedStream]] = {}
        self._unstored: list[str] = []
        self._settled_count = 0
        self._has_sent_unsettled = False

    def write(self, event: TextEvent) -> None:
        """Write the next piece of a text."""
        for stream, (other, _) in tuple(self._held.items()):
            # Streams of arguments of parallel calls do not end each other.
            if other.type != event.type or (stream != event.stream and isinstance(event, Message)):
                self._release(stream)
        _, redacted = self._held.setdefault(event.stream, (event, self._redaction.stream()))
        self._forward(event, redacted.feed(storable(event.text)))

    def flush(self) -> None:
        """Send all text that is held back, because another event follows it."""
        for stream in tuple(self._held):
            self._release(stream)
        self._coalescer.flush()

    def send_after_text(self, event: Event, changes: Sequence[RowChange] = (), audit: AuditEntry | None = None) -> None:
        """Send all text that is held back, then another event with its row changes and its audit entry."""
        self.flush()
        self._send(event, changes, audit)

    def settle(self) -> None:
        """Make the text so far permanent, because a call has started or ended; `rewind` does not remove it."""
        self._settled_count = len(self._unstored)
        self._has_sent_unsettled = False

    def rewind(self) -> None:
        """Remove the text since `settle`; send a `Rewind` if listeners have seen a part of it."""
        del self._unstored[self._settled_count :]
        self._held.clear()
        self._coalescer.discard()
        if self._has_sent_unsettled:
            self._has_sent_unsettled = False
            self._send(Rewind())

    def take_answer(self) -> str:
        """Return the answer's text since the last call of this method, for the store."""
        # Redact the whole text again: reasoning may have separated two halves of a secret.
        text = self._redaction("".join(self._unstored))
        self._unstored.clear()
        self._settled_count = 0
        return text

    def close(self) -> None:
        """Send all text that is held back; nothing more follows."""
        self.flush()
        self._coalescer.close()

    def _release(self, stream: Hashable) -> None:
        event, redacted = self._held.pop(stream)
        self._forward(event, redacted.flush())

    def _forward(self, event: TextEvent, text: str) -> None:
        if not text:
            return
        if isinstance(event, Message):
            self._unstored.append(text)
            for source in self._sources.take_cited(text):
                self._coalescer.flush()
                self._send(source)
        self._coalescer.add(event.with_text(text))

    def _send_piece(self, event: TextEvent) -> None:
        self._has_sent_unsettled = True
        self._send(event)
