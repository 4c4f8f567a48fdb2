"""Reduces many reports to a number that a person can read."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

PER_SECOND = 10
AT_ONCE = 10


class Throttle(Generic[T]):
    """Passes on up to `AT_ONCE` items at once, then `PER_SECOND` items a second; drops older items for newer ones.

    The first item is passed on immediately, the last one when it is due or on `flush`. Must be used in the event loop
    in which it was made.
    """

    def __init__(self, sink: Callable[[T], None]) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._allowed = float(AT_ONCE)
        self._seen_at_seconds = self._loop.time()
        self._held: list[T] = []
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: T) -> None:
        """Take an item; it replaces one that still waits."""
        now = self._loop.time()
        self._allowed = min(AT_ONCE, self._allowed + (now - self._seen_at_seconds) * PER_SECOND)
        self._seen_at_seconds = now
        if self._timer is None and self._allowed >= 1:
            self._allowed -= 1
            self._sink(item)
            return
        self._held = [item]
        if self._timer is None:
            self._timer = self._loop.call_later((1 - self._allowed) / PER_SECOND, self._due)

    def flush(self) -> None:
        """Pass on the item that waits, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held = self._held
        self._held = []
        for item in held:
            self._sink(item)

    def _due(self) -> None:
        self._allowed = 0
        self._seen_at_seconds = self._loop.time()
        self.flush()
