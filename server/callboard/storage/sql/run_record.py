"""Stores a run while it happens: its events, the rows that follow from them and its audit, in one transaction a batch.

Trouble with the database is handled here and nowhere else. A batch that cannot be stored is tried again until it is.
While events wait, listeners do not see them, for up to `PATIENCE_SECONDS`; then the run is *late*: it goes on in memory
and tells its user, and what waits is stored when the database is back, even after the run has ended.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import structlog
from sqlalchemy import Connection

from callboard._history import HistoryCall
from callboard._history.turn_rows import RowChange
from callboard.errors import RunLost, StorageError
from callboard.storage.sql.audit import Audit
from callboard.storage.sql.database import Database
from callboard.storage.sql.failures import is_trouble
from callboard.storage.sql.run_log import RunLog
from callboard.storage.sql.turn_writer import TurnWriter
from callboard.storage.values import AuditEntry, LoggedFrame, LoggedRun

PATIENCE_SECONDS = 5.0
"""The seconds that listeners wait for events to be stored: locks and a busy disk pass sooner."""
RETRY_SECONDS = 1.0
HAND_OVER_SECONDS = 5.0
"""The seconds that a server waits for the last events of a run to be stored that it leaves."""

_log = structlog.get_logger(__name__)


class RecordListener(Protocol):
    """The log of the run whose record it is."""

    on_lost: Callable[[], None]
    """Called when another server runs the run."""

    def on_shown(self, seq: int) -> None:
        """Take note that listeners may see the events up to this number."""

    def on_stored(self) -> None:
        """Take note that all events so far are stored."""

    def on_late(self) -> None:
        """Tell the user that the run may not be remembered."""

    def on_recovered(self) -> None:
        """Tell the user that the run is remembered after all."""


@dataclass(slots=True)
class _Batch:
    """What is stored in one transaction, in order."""

    frames: list[LoggedFrame] = field(default_factory=list)
    changes: list[RowChange] = field(default_factory=list)
    audit: list[AuditEntry] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.frames or self.changes or self.audit)


@dataclass(slots=True)
class NewRun:
    """A run that could not be begun in the database: see `RunLog.begin`."""

    request: bytes | None
    first: bytes


class RunRecord:
    """The record of one run of this server.

    `turn` is None for a run whose events and rows are not stored; then only its audit is. `new` is given if the run is
    not in the database yet. `keep_audit_days` is how long audit entries are kept; 0: forever.
    """

    def __init__(
        self,
        database: Database,
        run_log: RunLog,
        audit: Audit,
        run: LoggedRun,
        turn: TurnWriter | None,
        *,
        new: NewRun | None = None,
        keep_audit_days: float = 0.0,
    ) -> None:
        self.turn = turn
        self.error: StorageError | None = None
        """The failure that makes the run late; None if it is not."""
        self.has_ended = False
        self._database = database
        self._run_log = run_log
        self._audit = audit
        self._run = run
        self._new = new
        self._keep_audit_days = keep_audit_days
        self._listener: RecordListener | None = None
        self._newest_seq = run.last_seq
        self._waiting = _Batch()
        self._current: _Batch | None = None
        self._bytes = 0
        self._is_stopped = False
        self._is_lost = False
        self._is_in_memory = False
        self._storing: asyncio.Task[None] | None = None
        self._retry = asyncio.Event()
        self._attempts = 0
        self._failure: StorageError | None = None
        self._change: asyncio.Future[None] | None = None

    def report_to(self, listener: RecordListener) -> None:
        """Report to the run from now on."""
        self._listener = listener
        if self._new:
            self._be_late(StorageError("the run could not be begun in the database"))

    @property
    def chat_id(self) -> str | None:
        """The chat that the run answers in."""
        return self._run.chat_id

    @property
    def user_id(self) -> str | None:
        """The user who asked."""
        return self._run.user_id

    @property
    def calls(self) -> Sequence[HistoryCall]:
        """The calls of the turn so far."""
        return self.turn.rows.calls if self.turn and self.turn.is_kept else ()

    @property
    def size_bytes(self) -> int:
        """The memory that the record takes while it is not stored, roughly."""
        return self._bytes + (self.turn.rows.size_bytes if self.turn else 0)

    @property
    def is_late(self) -> bool:
        """Return whether the run goes on without waiting for the database."""
        return self.error is not None

    @property
    def is_stored(self) -> bool:
        """Return whether all events so far are stored."""
        return not (self._waiting or self._current or self._is_stopped or self._is_in_memory)

    def append(
        self,
        frame: LoggedFrame | None = None,
        changes: Sequence[RowChange] = (),
        audit: AuditEntry | None = None,
    ) -> None:
        """Add the next frame, with the changes that belong to it; stored a moment later."""
        if frame:
            self._newest_seq += 1
            self.has_ended = self.has_ended or frame.is_last
            if self.turn is None:
                frame = None
        if self._is_stopped:
            return
        if not self._is_in_memory:
            self._add(frame, changes, audit)
        if self.is_late or self._is_in_memory:
            self._show_unstored()

    def _add(self, frame: LoggedFrame | None, changes: Sequence[RowChange], audit: AuditEntry | None) -> None:
        if frame:
            self._waiting.frames.append(frame)
            self._bytes += frame.size_bytes
        self._waiting.changes += changes
        if audit:
            self._waiting.audit.append(audit)
        if self.has_ended and self.is_late:
            # Now that it has ended it counts among those that are bounded.
            self._database.late.add(self)
        if self._waiting and self._storing is None:
            self._storing = asyncio.create_task(self._store(), name=f"record of {self._run.run_id}")

    def take_back_last(self) -> bool:
        """Take back the run's last frame, which could not be stored: another must come before it; False if none."""
        batch = self._waiting if self._waiting.frames else self._current
        if not (batch and batch.frames and batch.frames[-1].is_last):
            return False
        self._bytes -= batch.frames.pop().size_bytes
        self._newest_seq -= 1
        self.has_ended = False
        return True

    async def read(self, after: int, max_bytes: int) -> list[bytes]:
        """Return stored frames after that number; see `RunLog.read`."""
        return await self._run_log.read(self._run.run_id, after, max_bytes)

    async def settled(self) -> None:
        """Return when all that was added is stored, or the run goes on without; also if the run is lost."""
        while not (
            self.is_stored or self._is_stopped or self._is_in_memory or (self.is_late and self._run_log.was_alone())
        ):
            await self._next_change()

    async def store_now(self) -> None:
        """Store all that waits; raises `StorageError` if the database does not take it, and `RunLost`."""
        was_late = self.is_late
        # What is added once it is late no longer may itself wait, for a run of its chat that waits for this one.
        while self._storing and not self.is_stored and (self.is_late or not was_late):
            attempts = self._attempts
            self._retry.set()
            while self._attempts == attempts and self._storing:
                await self._next_change()
            if self._failure:
                raise self._failure
        if self._is_lost:
            raise RunLost(f"run {self._run.run_id!r} is another server's by now")

    def retry(self) -> None:
        """Try again now: the database has taken another write."""
        self._retry.set()

    async def hand_over(self) -> bool:
        """Let any server take over the run; False if listeners may have seen events that are not stored."""
        if self._storing and not self.is_late:
            await asyncio.wait({self._storing}, timeout=HAND_OVER_SECONDS)
        if not self.is_stored:
            return False
        try:
            await self._run_log.hand_over(self._run)
        except RunLost:
            pass  # Another server has taken it already.
        except StorageError as error:
            _log.warning("run_not_handed_over", run_id=self._run.run_id, error=str(error))
            return False
        return True

    def stop(self) -> None:
        """Store nothing more, and show nothing more."""
        self._is_stopped = True
        self._database.late.discard(self)
        if self._storing:
            self._storing.cancel()
        self._notify()

    async def _store(self) -> None:
        try:
            while self._waiting:
                self._current = self._waiting
                self._waiting = _Batch()
                await self._store_batch(self._current)
                self._current = None
                if self._listener and self.is_stored:
                    self._listener.on_stored()
        except RunLost:
            self._is_stopped = self._is_lost = True
            self._database.late.discard(self)
            if self._listener:
                self._listener.on_lost()
        finally:
            self._storing = None
            self._notify()

    async def _store_batch(self, batch: _Batch) -> None:
        """Store a batch, again and again until the database takes it. Raises `RunLost`."""
        may_be_written = False
        while True:
            patience = asyncio.get_running_loop().call_later(
                PATIENCE_SECONDS, partial(self._be_late, StorageError("the database takes too long"), is_trying=True)
            )
            self._retry.clear()
            try:
                await self._try(batch, may_be_written=may_be_written)
            except StorageError as error:
                if batch.changes and error.__cause__ is not None and not is_trouble(error.__cause__):
                    # What the database refuses it would refuse again; the events go on without their rows.
                    self._drop_rows(batch, error.__cause__)
                    continue
                self._failure = error
                self._be_late(error)
            except RunLost:
                raise
            except Exception as mistake:  # noqa: BLE001 - listeners would wait for these events forever
                _log.error("run_not_stored", run_id=self._run.run_id, exc_info=mistake)
                if batch.changes:
                    self._drop_rows(batch, mistake)
                    continue
                self._give_up(StorageError("the run cannot be stored: the server's log says why"))
                return
            else:
                return
            finally:
                patience.cancel()
                self._attempts += 1
                self._notify()
            may_be_written = True
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._retry.wait()

    async def _try(self, batch: _Batch, *, may_be_written: bool) -> None:
        """Store a batch once; raises `StorageError`, `RunLost`."""
        if self.chat_id is not None:
            # Rows of a chat are in the order of their turns.
            await self._database.late.store(self.chat_id, before=self)
        await self._begin_if_new()

        def write_rows(connection: Connection) -> None:
            nonlocal may_be_written
            if self.turn:
                self.turn.write(connection, batch.changes, may_be_written=may_be_written)
            # It is called again if the connection was lost, perhaps after the commit.
            may_be_written = True
            for entry in batch.audit:
                self._audit.add(connection, entry, self._keep_audit_days)

        if self.turn:
            await self._run_log.append(self._run, batch.frames, write_rows, self.turn.find_rows)
        else:
            await self._database.write(write_rows)
        self._failure = None
        self._run = replace(self._run, last_seq=self._run.last_seq + len(batch.frames))
        self._bytes -= sum(frame.size_bytes for frame in batch.frames)
        if self.is_late and not self._waiting:
            self._recover()
        if self._listener:
            self._listener.on_shown(self._run.last_seq)

    async def _begin_if_new(self) -> None:
        if self._new is None:
            return
        if await self._run_log.begin(self._run, self._new.request, first=self._new.first) is not self._run:
            raise RunLost(f"run {self._run.run_id!r} was begun by another server")
        self._new = None

    def _recover(self) -> None:
        self.error = None
        self._database.late.discard(self)
        is_kept = self.turn is None or self.turn.is_kept
        if self._listener and is_kept and not self.has_ended:
            self._listener.on_recovered()

    async def _next_change(self) -> None:
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._change)

    def _notify(self) -> None:
        """Wake those who wait for the record."""
        if self._change:
            self._change.set_result(None)
            self._change = None

    def _be_late(self, error: StorageError, *, is_trying: bool = False) -> None:
        was_late = self.is_late
        self.error = error
        if not was_late:
            _log.warning("run_not_stored", run_id=self._run.run_id, after=self._run.last_seq, error=str(error))
            self._database.late.add(self)
            # While the last event is being stored, nothing can be said before it.
            is_last_on_its_way = is_trying and self.has_ended and not self._waiting.frames
            if self._listener and not is_last_on_its_way:
                self._listener.on_late()
        self._show_unstored()
        self._notify()

    def _drop_rows(self, batch: _Batch, error: BaseException) -> None:
        """Store the events without their rows from now on."""
        _log.error("turn_lost", run_id=self._run.run_id, error=str(error))
        batch.changes.clear()
        if self.turn and self.turn.is_kept:
            self.turn.drop()
            if self._listener:
                self._listener.on_late()

    def _give_up(self, error: StorageError) -> None:
        """Let the run go on in memory alone."""
        self.error = error
        self._is_in_memory = True
        self._waiting = _Batch()
        self._database.late.discard(self)
        if self._listener:
            self._listener.on_late()
        self._show_unstored()

    def _show_unstored(self) -> None:
        """Show all events, unless another server may continue the run from what is stored."""
        if self._listener and (self._is_in_memory or self._run_log.was_alone()):
            self._listener.on_shown(self._newest_seq)
