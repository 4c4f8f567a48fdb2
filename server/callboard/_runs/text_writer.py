"""The texts of one run on their way out: without secrets, in pieces worth an event, and kept for the store."""

from collections.abc import Callable, Hashable, Sequence

from callboard._history import RowChange
from callboard._redaction import RedactedStream, Redaction
from callboard._runs.delta_coalescer import DeltaCoalescer
from callboard._runs.earlier_sources import EarlierSources
from callboard._text import storable
from callboard.storage import AuditEntry
from callboard_protocol import Event, Message, Rewind, TextEvent


class TextWriter:
    """Takes pieces of answer, reasoning and arguments, and sends them on.

    What may be the beginning of a secret is held until it is known to be none, or something else follows. A source of
    an earlier turn is sent before the text that cites it: who draws it makes links of the sources that it knows.
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
        """Take the next piece of a text."""
        for stream, (other, _) in tuple(self._held.items()):
            # Arguments of several calls are written side by side.
            if other.type != event.type or (stream != event.stream and isinstance(event, Message)):
                self._release(stream)
        _, redacted = self._held.setdefault(event.stream, (event, self._redaction.stream()))
        self._forward(event, redacted.feed(storable(event.text)))

    def flush(self) -> None:
        """Send all that is held: something else follows, which must not overtake it."""
        for stream in tuple(self._held):
            self._release(stream)
        self._coalescer.flush()

    def send_after_text(self, event: Event, changes: Sequence[RowChange] = (), audit: AuditEntry | None = None) -> None:
        """Send another event after all that is held, with the changes and the audit entry that belong to it."""
        self.flush()
        self._send(event, changes, audit)

    def settle(self) -> None:
        """Keep what was written so far from being taken back: a call has started or ended."""
        self._settled_count = len(self._unstored)
        self._has_sent_unsettled = False

    def rewind(self) -> None:
        """Forget what was written since it was settled; who has seen none of it is told nothing."""
        del self._unstored[self._settled_count :]
        self._held.clear()
        self._coalescer.discard()
        if self._has_sent_unsettled:
            self._has_sent_unsettled = False
            self._send(Rewind())

    def take_answer(self) -> str:
        """Return the answer's text since it was last taken: it is about to be stored."""
        # Once more as a whole: reasoning may have come between two halves of a secret.
        text = self._redaction("".join(self._unstored))
        self._unstored.clear()
        self._settled_count = 0
        return text

    def close(self) -> None:
        """Send what is held, and let go of whoever it was sent to."""
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
