"""The events of one run, numbered and encoded as frames, for any number of listeners.

The newest events are kept beside their frames for listeners in this process. Appending never waits: a slow listener
reads from the log and holds up nobody. The record of a run that is stored decides when listeners see an event.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from callboard._history import RowChange
from callboard._runs.files import RunFiles
from callboard._runs.holdings import Account
from callboard.errors import LogExpired, StorageError
from callboard.storage import AuditEntry, LoggedFrame, RunRecord
from callboard_protocol import Decoder, Done, Error, Event, InputRequest, decode, encode

MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_CHUNK_BYTES = 64 * 1024

MAX_RECENT_BYTES = 4 * MAX_CHUNK_BYTES
"""The most that the events of a live run may take beside their frames."""

EVENT_BYTES = 500
"""The memory that an event takes, its texts aside."""


class EventLog:
    """Events 1, 2, 3 … of a run; the oldest are dropped beyond `max_bytes`, and if `account` has no room.

    `on_append` is called with each event. After `store_in` listeners see an event when its record says so.
    """

    def __init__(
        self,
        max_bytes: int = MAX_LOG_BYTES,
        account: Account | None = None,
        on_append: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self._account = account or Account()
        self._on_append = on_append
        self._frames: deque[bytes] = deque()
        self._recent: deque[tuple[Event, int]] = deque()
        self._recent_bytes = 0
        self._first_seq = 1
        self._bytes = 0
        self._max_bytes = max_bytes
        self._waiting: set[asyncio.Future[None]] = set()
        self._shown_seq = 0
        self._record: RunRecord | None = None
        self._files = RunFiles("")
        self.on_trouble: Callable[[bool], None] = lambda _: None
        """Called with True when events can no longer be stored, with False when they are stored again."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when another server runs the run."""
        self.is_abandoned = False
        """True if another server continues the run."""
        self.closed = False

    def store_in(self, record: RunRecord, files: RunFiles) -> None:
        """Store the events in this record too, with the files that they name."""
        self._record = record
        self._files = files
        record.report_to(self)

    def on_shown(self, seq: int) -> None:
        """Show listeners the events up to this number; see `RecordListener`."""
        self._show(seq)

    def on_stored(self) -> None:
        """Take note that all events are stored; see `RecordListener`."""
        if self.is_recorded:
            self._files.drop_stored()

    def on_late(self) -> None:
        """Say that the run may not be remembered; see `RecordListener`."""
        if self.closed:
            return
        last = self._take_back_last()
        self.on_trouble(True)
        if last:
            # Observers know of it.
            self._append(last)

    def _take_back_last(self) -> Event | None:
        """Take back the run's last event if it could not be stored: nothing could be said after it."""
        if not (self._record and self._shown_seq < self.last_seq and self._record.take_back_last()):
            return None
        self._count(-len(self._frames.pop()))
        return self._recent.pop()[0]

    def on_recovered(self) -> None:
        """Say that the run is remembered after all; see `RecordListener`."""
        if not self.closed:
            self.on_trouble(False)

    def continue_after(self, seq: int) -> None:
        """Continue a log whose events up to this one are stored; they are read from there."""
        self._first_seq = seq + 1
        self._show(seq)

    @property
    def is_recorded(self) -> bool:
        """Return whether events are stored, and shown only then."""
        return self._record is not None and self._record.turn is not None

    @property
    def is_stored(self) -> bool:
        """Return whether all events so far are in the database."""
        return self._record is not None and self.is_recorded and self._record.is_stored

    @property
    def failure(self) -> StorageError | None:
        """The reason why the run goes on without the database; None if it does not."""
        return self._record.error if self._record else None

    async def settled(self) -> None:
        """Return when all events so far are stored, or the run goes on without the database, or is abandoned."""
        if self._record and not self.is_abandoned:
            await self._record.settled()

    async def store_now(self) -> None:
        """Try once to store what a database in trouble has not taken."""
        if self._record:
            with suppress(StorageError):
                await self._record.store_now()

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._first_seq + len(self._frames) - 1

    def append(self, event: Event, changes: Sequence[RowChange] = (), audit: AuditEntry | None = None) -> int:
        """Give an event its number and keep it, with the changes and the audit entry that belong to it."""
        self._on_append(event)
        return self._append(event, changes, audit)

    def _append(self, event: Event, changes: Sequence[RowChange] = (), audit: AuditEntry | None = None) -> int:
        seq = self.last_seq + 1
        frame = encode(seq, event)
        self._frames.append(frame)
        self._count(len(frame))
        while len(self._frames) > 1 and (self._bytes > self._max_bytes or not self._account.make_room()):
            self._count(-len(self._frames.popleft()))
            self._first_seq += 1
        self._keep_recent(event, len(frame) + EVENT_BYTES)
        if self._record:
            question = event.request_id if isinstance(event, InputRequest) else None
            is_last = isinstance(event, Done | Error)
            self._record.append(LoggedFrame(frame, question, self._files.take_new(), is_last), changes, audit)
        if not self.is_recorded:
            self._show(seq)
        return seq

    def write(self, changes: Sequence[RowChange]) -> None:
        """Store changes that no event brings."""
        if self._record and changes:
            self._record.append(changes=changes)

    def close(self) -> None:
        """Take no more events: listeners that have read all of them end."""
        self.closed = True
        self._recent.clear()
        self._wake()

    async def hand_over(self) -> bool:
        """Let another server continue the run; False if not all events are stored."""
        return self._record is not None and self.is_recorded and await self._record.hand_over()

    def abandon(self) -> None:
        """Show and store no more: listeners end with what they have seen, and reconnect elsewhere."""
        self.is_abandoned = True
        if self._record:
            self._record.stop()
        self.close()

    def check(self, after: int) -> None:
        """Raise `LogExpired` where the event after `after` is no longer kept."""
        if self._has_dropped(after) and not self.is_recorded:
            raise self._expired(after)

    async def tail(self, after: int = 0) -> AsyncIterator[bytes]:
        """Yield frames from the event after `after`, joined where several are ready, until the log is closed.

        Those that are here no longer are read from the store. Raises `LogExpired` where they are not there either.
        """
        while await self._has_more(after):
            if self._has_dropped(after):
                frames = await self._record.read(after, MAX_CHUNK_BYTES) if self._record else []
                if not frames:
                    raise self._expired(after)
                after += len(frames)
                yield b"".join(frames)
            else:
                ready = self._chunk(after)
                after = ready[-1]
                yield b"".join(self._frames[seq - self._first_seq] for seq in ready)

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Yield the events from the one after `after`, until the log is closed."""
        while await self._has_more(after):
            if self._has_dropped(after):
                raise self._expired(after)
            ready = self._chunk(after)
            after = ready[-1]
            for event in [self._event(seq) for seq in ready]:
                yield event

    async def _has_more(self, after: int) -> bool:
        """Return True once there is something after `after` to be seen, False where there will be nothing."""
        while after >= self._shown_seq:
            if self.is_abandoned or (self.closed and self._shown_seq == self.last_seq):
                return False
            await self._change()
        return True

    def _has_dropped(self, after: int) -> bool:
        return after + 1 < self._first_seq

    def _expired(self, after: int) -> LogExpired:
        return LogExpired(
            f"the log begins at event {self._first_seq}, event {after + 1} is gone: start a new run, or read "
            "what the chat keeps of this one"
        )

    def _chunk(self, after: int) -> range:
        """Return the numbers of what follows `after` and travels together."""
        size_bytes = 0
        for seq in range(after + 1, self._shown_seq + 1):
            size_bytes += len(self._frames[seq - self._first_seq])
            if size_bytes > MAX_CHUNK_BYTES and seq > after + 1:
                return range(after + 1, seq)
        return range(after + 1, self._shown_seq + 1)

    def _show(self, seq: int) -> None:
        self._shown_seq = max(self._shown_seq, seq)
        self._wake()

    def _keep_recent(self, event: Event, size_bytes: int) -> None:
        self._recent.append((event, size_bytes))
        self._recent_bytes += size_bytes
        while self._recent_bytes > MAX_RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft()[1]

    def _event(self, seq: int) -> Event:
        newer = self.last_seq - seq
        if newer < len(self._recent):
            return self._recent[-1 - newer][0]
        # The listener is far behind, or the run has ended.
        [frame] = Decoder().feed(self._frames[seq - self._first_seq])
        event = decode(frame)
        assert event is not None
        return event

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
