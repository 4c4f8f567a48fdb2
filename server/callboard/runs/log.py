"""Numbers the events of one run, encodes them as frames, and delivers them to any number of listeners.

Appending never waits: listeners read from the log, so a slow listener delays nobody. If the run is stored, listeners
see an event after its record has stored it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from callboard._history import RowChange
from callboard.errors import LogExpired
from callboard.runs.files import RunFiles
from callboard.runs.limits import RunMemory
from callboard.storage.sql.run_record import RunRecord
from callboard.storage.values import StoredFrame
from callboard_protocol import Decoder, Done, Error, Event, InputRequest, Parked, ToolRequest, decode, encode
from callboard_protocol.events import APPROVAL_PREFIX

MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_CHUNK_BYTES = 64 * 1024


class EventLog:
    """The events of a run, numbered from 1.

    The oldest frames are dropped if the log exceeds `MAX_LOG_BYTES` or `memory` has no room. `on_append` is called with
    each event except `Parked`. After `store_in`, the record decides when listeners see an event.
    """

    def __init__(
        self,
        memory: RunMemory | None = None,
        on_append: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self.memory = memory or RunMemory()
        """Counts the memory of the run."""
        self._on_append = on_append
        self._frames: deque[bytes] = deque()
        self._first_seq = 1
        self._bytes = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._shown_seq = 0
        self._record: RunRecord | None = None
        self._files = RunFiles("")
        self.on_unremembered: Callable[[], None] = lambda: None
        """Called when the answer may not be remembered, before the last event."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when another server continues the run."""
        self.is_leaving = False
        """True as soon as this server stops the run for another one, which continues it."""
        self.is_left = False
        """True after `leave`: another server continues the run."""
        self.closed = False
        self._last: Done | Error | Parked | None = None
        """The event that no other may follow."""

    def store_in(self, record: RunRecord, files: RunFiles) -> None:
        """Store the events in `record` as well, with the files that they link to."""
        self._record = record
        self._files = files
        record.report_to(self)

    def on_shown(self, seq: int) -> None:
        """Show the events up to `seq` to listeners; see `RecordListener`."""
        self._shown_seq = max(self._shown_seq, seq)
        self._wake()

    def on_stored(self) -> None:
        """Drop the files from memory, because all events are stored; see `RecordListener`."""
        if self.is_stored:
            self._files.drop_stored()

    def on_rows_dropped(self) -> None:
        """Report that the answer may not be remembered; see `RecordListener`."""
        if self._last is None:
            self.on_unremembered()

    def on_unstored(self) -> None:
        """Report that the answer may not be remembered, and show all events; see `RecordListener`."""
        if not self.closed:
            last, self._last = self._last, None
            if last:
                # No listener has seen it, and the report comes before it.
                self._count_bytes(-len(self._frames.pop()))
            self.on_unremembered()
            if last and not isinstance(last, Parked):
                # Not `append`, because observers have received this event.
                self._append(last)
        self.on_shown(self.last_seq)

    def continue_after(self, seq: int) -> None:
        """Continue after event `seq` of another server; listeners read the earlier events from the database."""
        self._first_seq = seq + 1
        self.on_shown(seq)

    @property
    def is_stored(self) -> bool:
        """Whether listeners see an event only after its commit."""
        return self._record is not None and not self._record.is_unstored

    @property
    def has_stored_all(self) -> bool:
        """Whether the database has all events so far."""
        return self._record is not None and self.is_stored and self._record.has_stored_all

    async def wait_until_stored(self) -> None:
        """Wait until all events are stored, or nothing more of the run is stored, or it is left."""
        if self._record and not self.is_left:
            await self._record.wait_until_stored()

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._first_seq + len(self._frames) - 1

    def append(self, event: Event, changes: Sequence[RowChange] = ()) -> None:
        """Append an event with its row changes."""
        self._on_append(event)
        self._append(event, changes)

    def _append(self, event: Event, changes: Sequence[RowChange] = ()) -> None:
        if isinstance(event, Done | Error | Parked):
            self._last = event
        seq = self.last_seq + 1
        frame = encode(seq, event)
        self._frames.append(frame)
        self._count_bytes(len(frame))
        while len(self._frames) > 1 and (self._bytes > MAX_LOG_BYTES or not self.memory.make_room()):
            self._count_bytes(-len(self._frames.popleft()))
            self._first_seq += 1
        if self._record:
            question = event.request_id if isinstance(event, InputRequest | ToolRequest) else None
            is_last = isinstance(event, Done | Error)
            waiting = event.tool_call_ids if isinstance(event, Parked) else ()
            waits_for = [f"{APPROVAL_PREFIX}{call_id}" for call_id in waiting]
            self._record.append(StoredFrame(frame, question, self._files.take_new(), is_last, waits_for), changes)
        if not self.is_stored:
            self.on_shown(self.last_seq)

    def write(self, changes: Sequence[RowChange]) -> None:
        """Store row changes that belong to no event."""
        if self._record and changes:
            self._record.append(changes=changes)

    def close(self) -> None:
        """Close the log: listeners end after the last event."""
        self.closed = True
        self._wake()

    def drop(self) -> None:
        """Drop all frames; listeners that have not read them read them from the database, if they are stored."""
        self._first_seq += len(self._frames)
        self._frames.clear()
        self._count_bytes(-self._bytes)

    async def release(self) -> bool:
        """Let another server continue the run; return False if not all events are stored."""
        return self._record is not None and self.is_stored and await self._record.release()

    async def park(self, tool_call_ids: Sequence[str]) -> bool:
        """End the run until the approval of one of its calls is answered; return False if that is not stored."""
        if not self.is_stored:
            return False
        self._append(Parked(tool_call_ids=tuple(tool_call_ids)))
        await self.wait_until_stored()
        return self.is_stored

    def leave(self) -> None:
        """Stop storing and showing events: another server continues the run, and listeners reconnect there."""
        self.is_leaving = self.is_left = True
        if self._record:
            self._record.stop()
        self.close()

    def check(self, after: int) -> None:
        """Raise `LogExpired` if the event after `after` was dropped and is not in the database."""
        if self._has_dropped(after) and not self.is_stored:
            raise self._expired(after)

    async def tail(self, after: int = 0) -> AsyncIterator[bytes]:
        """Yield the frames after event `after`, several at once if they are ready, until the log is closed.

        Dropped frames are read from the database. Raises `LogExpired` if they are not there either.
        """
        while True:
            while after >= self._shown_seq:
                if self.is_left or (self.closed and self._shown_seq == self.last_seq):
                    return
                await self._wait_for_change()
            if self._has_dropped(after):
                frames = await self._record.read(after, MAX_CHUNK_BYTES) if self._record else []
                if not frames:
                    raise self._expired(after)
            else:
                frames = self._frames_after(after)
            after += len(frames)
            yield b"".join(frames)

    async def events(self) -> AsyncIterator[Event]:
        """Yield all events, until the log is closed. Raises the errors of `tail`."""
        decoder = Decoder()
        async for chunk in self.tail():
            for event in _decode(decoder, chunk):
                yield event

    def _has_dropped(self, after: int) -> bool:
        return after + 1 < self._first_seq

    def _expired(self, after: int) -> LogExpired:
        return LogExpired(
            f"event {after + 1} is no longer available, the first one is {self._first_seq}: start a new run, or read "
            "the stored messages of the chat"
        )

    def _frames_after(self, after: int) -> list[bytes]:
        """Return the frames after event `after` that are sent in one chunk."""
        frames: list[bytes] = []
        size_bytes = 0
        for seq in range(after + 1, self._shown_seq + 1):
            frame = self._frames[seq - self._first_seq]
            size_bytes += len(frame)
            if frames and size_bytes > MAX_CHUNK_BYTES:
                break
            frames.append(frame)
        return frames

    async def _wait_for_change(self) -> None:
        # A future for each listener: an `asyncio.Event` needs more memory than everything else of an idle listener.
        changed = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            await changed
        finally:
            self._waiting.discard(changed)

    def _count_bytes(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self.memory.add(size_bytes)

    def _wake(self) -> None:
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)


def _decode(decoder: Decoder, chunk: bytes) -> Iterator[Event]:
    for frame in decoder.feed(chunk):
        event = decode(frame)
        assert event is not None, "this server has encoded it"
        yield event
