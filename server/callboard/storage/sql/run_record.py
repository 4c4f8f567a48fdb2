"""Stores a run while it is running: its events, and the rows made from them, one transaction for each batch.

Database failures while a run is stored are handled here. A batch that cannot be stored is retried until it is stored.
Listeners do not see events before they are stored. After `PATIENCE_SECONDS` the run is *late*: it continues in memory,
a status informs the user, and the waiting events are stored when the database works again, even after the end of the
run.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

import structlog
from sqlalchemy import Connection

from callboard._history import HistoryCall
from callboard._history.turn_rows import RowChange
from callboard.errors import RunConflict, RunLost, StorageError
from callboard.storage.sql.database import Database
from callboard.storage.sql.failures import is_database_failure
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.sql.turn_writer import TurnWriter
from callboard.storage.values import StoredFrame, StoredRun

PATIENCE_SECONDS = 5.0
"""The longest time that listeners wait for an event to be stored; locks and a busy disk rarely last longer."""
RETRY_SECONDS = 1.0
HAND_OVER_SECONDS = 5.0
"""The longest time that a stopping server waits for a run's last events to be stored before it hands the run over."""

_log = structlog.get_logger(__name__)


class _State(Enum):
    """The state of a record: what it does with its batches."""

    STORING = auto()
    """It stores them before listeners see them."""
    LATE = auto()
    """It tries to store them while the run goes on."""
    IN_MEMORY = auto()
    """It has given up: the run goes on, and nothing more of it is stored."""
    STOPPED = auto()
    """The server no longer needs the run: unstored data was dropped."""
    LOST = auto()
    """Another server has taken over the run."""


class RecordListener(Protocol):
    """Receives the state of a record; implemented by the event log of the run."""

    on_lost: Callable[[], None]
    """Called when another server has taken over the run."""

    def on_shown(self, seq: int | None) -> None:
        """Send the events up to this number to listeners, or all events if it is None."""

    def on_stored(self) -> None:
        """Handle that all events so far are stored."""

    def on_late(self) -> None:
        """Inform the user that the run is late and may not be stored."""

    def on_recovered(self) -> None:
        """Inform the user that the late run is stored after all."""


@dataclass(slots=True)
class _Batch:
    """The frames and row changes of one transaction."""

    frames: list[StoredFrame] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.frames or self.changes)


@dataclass(slots=True)
class NewRun:
    """The arguments for `StoredRuns.begin` of a run that the database could not store when it began."""

    request: bytes | None
    first: bytes


class RunRecord:
    """The record of one run of this server.

    `writer` is None for a run without a stored chat: only its audit entries are stored. `new` is given if the run is
    not in the database yet. `keep_audit_days` is the retention of audit entries; 0: forever.
    """

    def __init__(
        self,
        database: Database,
        stored_runs: StoredRuns,
        run: StoredRun,
        writer: TurnWriter | None,
        *,
        new: NewRun | None = None,
    ) -> None:
        self.chat_id = run.chat_id
        self.user_id = run.user_id
        self.writer = writer
        self.failure: StorageError | None = None
        """The failure because of which the run goes on without the database; None if it does not."""
        self.has_ended = False
        self._database = database
        self._stored_runs = stored_runs
        self._run = run
        self._new = new
        self._listener: RecordListener | None = None
        self._waiting = _Batch()
        self._current: _Batch | None = None
        self._bytes = 0
        self._state = _State.STORING
        self._storing: asyncio.Task[None] | None = None
        self._retry = asyncio.Event()
        self._change: asyncio.Future[StorageError | None] | None = None

    def report_to(self, listener: RecordListener) -> None:
        """Call `listener` from now on."""
        self._listener = listener
        if self._new:
            self._become_late(StorageError("the run could not be created in the database"))

    @property
    def calls(self) -> Sequence[HistoryCall]:
        """The calls of the turn so far."""
        return self.writer.rows.calls if self.writer and self.writer.is_kept else ()

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the data that is not stored yet."""
        return self._bytes + (self.writer.rows.size_bytes if self.writer else 0)

    @property
    def is_late(self) -> bool:
        """Whether events could not be stored in time."""
        return self._state in (_State.LATE, _State.IN_MEMORY)

    @property
    def is_stored(self) -> bool:
        """Whether all events so far are stored."""
        return self._is_storing and not (self._waiting or self._current)

    @property
    def _is_storing(self) -> bool:
        return self._state in (_State.STORING, _State.LATE)

    def append(
        self,
        frame: StoredFrame | None = None,
        changes: Sequence[RowChange] = (),
    ) -> None:
        """Add a frame with its row changes to the next batch; a background task stores the batch."""
        if frame:
            self.has_ended = self.has_ended or frame.is_last
        if self._is_storing:
            if frame and self.writer:
                self._waiting.frames.append(frame)
                self._bytes += frame.size_bytes
            self._waiting.changes += changes
            if self.has_ended and self.is_late:
                # `LateRecords` limits the records of runs that have ended: apply the limit now.
                self._database.late.add(self)
            if self._waiting and self._storing is None:
                self._storing = asyncio.create_task(self._store_waiting(), name=f"record of {self._run.run_id}")
        if self.is_late:
            self._show_unstored()

    def take_back_last(self) -> bool:
        """Remove the newest frame if it is not stored and no other may follow it; return whether it was removed."""
        batch = self._waiting if self._waiting.frames else self._current
        if not (batch and batch.frames and (batch.frames[-1].is_last or batch.frames[-1].parks)):
            return False
        self._bytes -= batch.frames.pop().size_bytes
        self.has_ended = False
        return True

    async def read(self, after: int, max_bytes: int) -> list[bytes]:
        """Return stored frames after number `after`; see `StoredRuns.read`."""
        return await self._stored_runs.read(self._run.run_id, after, max_bytes)

    async def wait_until_stored(self) -> None:
        """Wait until everything added is stored, or until the run no longer waits for the database, or is lost."""
        while self._is_storing and not self.is_stored:
            if self.is_late and not self._database.may_lose_runs():
                return
            await self._next_change()

    async def store_now(self) -> None:
        """Store everything that is waiting; raises `StorageError` if an attempt fails, and `RunLost`."""
        was_late = self.is_late
        # After the record has recovered, new events may wait for another run of the chat that waits for this one.
        while self._storing and not self.is_stored and (self.is_late or not was_late):
            self._retry.set()
            if error := await self._next_change():
                raise error
        if self._state is _State.LOST:
            raise RunLost(f"run {self._run.run_id!r} now belongs to another server")

    def retry(self) -> None:
        """Retry now, because the database has just committed another write."""
        self._retry.set()

    async def hand_over(self) -> bool:
        """Release the run so that any server can take it over; False if its events cannot be stored completely."""
        if self._storing and not self.is_late:
            await asyncio.wait({self._storing}, timeout=HAND_OVER_SECONDS)
        if not self.is_stored:
            return False
        try:
            await self._stored_runs.hand_over(self._run)
        except RunLost:
            pass  # Another server has taken over the run already.
        except StorageError as error:
            _log.warning("run_not_handed_over", run_id=self._run.run_id, error=str(error))
            return False
        return True

    def stop(self) -> None:
        """Stop storing the run; unstored data is dropped."""
        if self._state is not _State.LOST:
            self._state = _State.STOPPED
        self._database.late.discard(self)
        if self._storing:
            self._storing.cancel()
        self._notify()

    def drop(self) -> None:
        """Stop storing a run that has ended; listeners get the rest of it from memory."""
        self.stop()
        self._state = _State.IN_MEMORY
        self._show_unstored()

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                self._current = self._waiting
                self._waiting = _Batch()
                await self._store_batch(self._current)
                self._current = None
                if self._listener and self.is_stored:
                    self._listener.on_stored()
        except RunLost:
            self._state = _State.LOST
            self._database.late.discard(self)
            if self._listener:
                self._listener.on_lost()
        finally:
            self._storing = None
            self._notify()

    async def _store_batch(self, batch: _Batch) -> None:
        """Store a batch, retrying until it succeeds. Raises `RunLost`."""
        may_be_written = False
        while True:
            patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._lose_patience)
            self._retry.clear()
            failure = None
            try:
                await self._store_once(batch, may_be_written=may_be_written)
            except StorageError as error:
                if batch.changes and error.__cause__ is not None and not is_database_failure(error.__cause__):
                    # The database refuses these values and would refuse them again: store the events without rows.
                    self._drop_rows(batch, error.__cause__)
                    continue
                failure = error
                self._become_late(error)
            except RunLost:
                raise
            except Exception as error:  # noqa: BLE001 - listeners would wait for these events forever
                _log.error("run_not_stored", run_id=self._run.run_id, exc_info=error)
                if batch.changes:
                    self._drop_rows(batch, error)
                    continue
                self._give_up(StorageError("the run cannot be stored: see the server's log"))
                return
            else:
                return
            finally:
                patience.cancel()
                self._notify(failure)
            may_be_written = True
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._retry.wait()

    async def _begin(self, new: NewRun) -> None:
        """Insert a run that could not be inserted when it started.

        Raises `StorageError`, and `RunLost` if there is another run with its id.
        """
        try:
            begun = await self._stored_runs.begin(self._run, new.request, first=new.first)
        except RunConflict as error:
            raise RunLost(str(error)) from error
        if begun is not self._run:
            raise RunLost(f"run {self._run.run_id!r} was begun by another server")

    async def _store_once(self, batch: _Batch, *, may_be_written: bool) -> None:
        """Store a batch once; raises `StorageError`, `RunLost`."""
        if self.chat_id is not None:
            # The rows of a chat are stored in the order of its turns.
            await self._database.late.store(self.chat_id, before=self)
        if self._new:
            await self._begin(self._new)
            self._new = None

        def write_rows(connection: Connection) -> None:
            nonlocal may_be_written
            if self.writer:
                self.writer.write(connection, batch.changes, may_be_written=may_be_written)
            # This is called again if the connection was lost, possibly after the commit.
            may_be_written = True

        if self.writer:
            await self._stored_runs.append(self._run, batch.frames, write_rows, self.writer.reload_row_ids)
        else:
            await self._database.write(write_rows)
        self._run = replace(self._run, last_seq=self._run.last_seq + len(batch.frames))
        self._bytes -= sum(frame.size_bytes for frame in batch.frames)
        if self.is_late and not self._waiting:
            self._recover()
        if self._listener:
            self._listener.on_shown(self._run.last_seq)

    def _recover(self) -> None:
        self._state = _State.STORING
        self.failure = None
        self._database.late.discard(self)
        is_kept = self.writer is None or self.writer.is_kept
        if self._listener and is_kept and not self.has_ended:
            self._listener.on_recovered()

    async def _next_change(self) -> StorageError | None:
        """Wait for the next change of the record; return the error if it is a failed attempt."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._change)

    def _notify(self, failure: StorageError | None = None) -> None:
        """Wake the tasks that wait for a change of the record."""
        if self._change:
            self._change.set_result(failure)
            self._change = None

    def _lose_patience(self) -> None:
        """Become late while an attempt goes on."""
        if self._current and any(frame.parks for frame in self._current.frames):
            # The run is parked when this batch is stored. Before that, no client may see it as parked.
            return
        self._become_late(StorageError("the database takes too long"), is_trying=True)
        self._notify()

    def _become_late(self, error: StorageError, *, is_trying: bool = False) -> None:
        was_late = self.is_late
        self._state = _State.LATE
        self.failure = error
        if not was_late:
            _log.warning("run_not_stored", run_id=self._run.run_id, after=self._run.last_seq, error=str(error))
            self._database.late.add(self)
            # While the last event is being stored, nothing can be said before it.
            is_last_on_its_way = is_trying and self.has_ended and not self._waiting.frames
            if self._listener and not is_last_on_its_way:
                self._listener.on_late()
        self._show_unstored()

    def _drop_rows(self, batch: _Batch, error: BaseException) -> None:
        """Store the events of the run without rows from now on."""
        _log.error("turn_lost", run_id=self._run.run_id, error=str(error))
        batch.changes.clear()
        if self.writer and self.writer.is_kept:
            self.writer.drop()
            if self._listener:
                self._listener.on_late()

    def _give_up(self, error: StorageError) -> None:
        """Continue the run in memory and stop storing it."""
        self._state = _State.IN_MEMORY
        self.failure = error
        self._waiting = _Batch()
        self._database.late.discard(self)
        if self._listener:
            self._listener.on_late()
        self._show_unstored()

    def _show_unstored(self) -> None:
        """Release unstored events to listeners, unless another server may continue the run from the stored events."""
        if self._listener and (self._state is _State.IN_MEMORY or not self._database.may_lose_runs()):
            self._listener.on_shown(None)
