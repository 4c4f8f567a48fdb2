"""The events of one run, numbered and kept as frames, for any number of listeners.

Appending never waits. A listener that is slow reads from the log and holds up nobody.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from callboard.errors import LogExpired
from callboard.runs.holdings import Account
from callboard_protocol import Event, encode

MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_CHUNK_BYTES = 64 * 1024


class EventLog:
    """Frames 1, 2, 3 … of a run; the oldest are let go beyond `max_bytes`, and where `account` has no room."""

    def __init__(self, max_bytes: int = MAX_LOG_BYTES, account: Account | None = None) -> None:
        self._account = account or Account()
        self._frames: deque[bytes] = deque()
        self._first_seq = 1
        self._bytes = 0
        self._max_bytes = max_bytes
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._first_seq + len(self._frames) - 1

    def append(self, event: Event) -> int:
        """Number an event and keep it; returns its `seq`."""
        seq = self.last_seq + 1
        frame = encode(seq, event)
        self._frames.append(frame)
        self._count(len(frame))
        while len(self._frames) > 1 and (self._bytes > self._max_bytes or not self._account.make_room()):
            self._count(-len(self._frames.popleft()))
            self._first_seq += 1
        self._wake()
        return seq

    def close(self) -> None:
        """No more events: listeners that have read all of them end."""
        self.closed = True
        self._wake()

    def check(self, after: int) -> None:
        """Raise `LogExpired` where the event after `after` is no longer kept."""
        if after + 1 < self._first_seq:
            raise LogExpired(
                f"the log begins at event {self._first_seq}, event {after + 1} is gone: start a new run, or read "
                "what the chat keeps of this one"
            )

    async def tail(self, after: int = 0) -> AsyncIterator[bytes]:
        """Frames from the event after `after`, joined where several are ready, until the log is closed."""
        while True:
            self.check(after)
            while after < self.last_seq:
                chunk = self._chunk(after)
                after += len(chunk)
                yield b"".join(chunk)
                self.check(after)
            if self.closed:
                return
            await self._change()

    def _chunk(self, after: int) -> list[bytes]:
        chunk: list[bytes] = []
        size = 0
        for index in range(after + 1 - self._first_seq, len(self._frames)):
            frame = self._frames[index]
            if chunk and size + len(frame) > MAX_CHUNK_BYTES:
                break
            chunk.append(frame)
            size += len(frame)
        return chunk

    async def _change(self) -> None:
        # Of each listener's own: an `asyncio.Event` takes more memory than all else that a silent one needs here.
        changed = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            await changed
        finally:
            self._waiting.discard(changed)

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._account.add(size_bytes)

    def _wake(self) -> None:
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)
