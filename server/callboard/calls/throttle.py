"""Reports by the thousand as the few that somebody can read."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

PER_SECOND = 10
AT_ONCE = 10


class Throttle(Generic[T]):
    """Sieve that hands on `AT_ONCE` items together and `PER_SECOND` from then on; of more than that the newest.

    The first goes through at once, the last when it is due or on `flush`. For the event loop that it was made in.
    """

    def __init__(self, sink: Callable[[T], None]) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._allowed = float(AT_ONCE)
        self._seen_at_seconds = self._loop.time()
        self._held: list[T] = []
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: T) -> None:
        """Take the next one; one that still waits is dropped for it."""
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
        """Hand on the one that waits: no more will come."""
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
