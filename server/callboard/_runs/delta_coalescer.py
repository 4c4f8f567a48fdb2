"""Joins small pieces of text that arrive quickly, so that there are fewer events."""

import asyncio
from collections.abc import Callable
from itertools import groupby

from callboard_protocol import TextEvent

COALESCE_SECONDS = 0.025
"""The shortest time between two text events; pieces that arrive sooner are joined."""


class DeltaCoalescer:
    """Delays text by at most `COALESCE_SECONDS`; text that arrives slowly is sent immediately."""

    def __init__(self, send: Callable[[TextEvent], None]) -> None:
        self._send = send
        self._pending: list[TextEvent] = []
        self._flushed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, event: TextEvent) -> None:
        self._pending.append(event)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            wait = self._flushed_at + COALESCE_SECONDS - loop.time()
            if wait <= 0:
                self.flush()
            else:
                self._timer = loop.call_later(wait, self.flush)

    def discard(self) -> None:
        """Drop the text that is not sent yet."""
        self._pending.clear()
        self.flush()

    def close(self) -> None:
        """Send the delayed text, and drop the reference to `send`: nothing more follows."""
        self.flush()
        self._send = _drop

    def flush(self) -> None:
        """Send the delayed text now, because another event follows it."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        pending = self._pending
        self._pending = []
        for _, neighbours in groupby(pending, key=lambda event: event.stream):
            first, *rest = neighbours
            self._send(first.with_text("".join([first.text, *(event.text for event in rest)])) if rest else first)
        self._flushed_at = asyncio.get_running_loop().time()


def _drop(_: TextEvent) -> None:
    """Ignore text after `close`."""
