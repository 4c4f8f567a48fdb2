"""The log of runs in a database: frames, owners, and what servers leave for each other.

A connection may be lost once a transaction is committed and before anybody is told. So what was written is looked for
where it cannot be written again, and a run that is this server's by its row and that nobody runs is taken over like
those of servers that are gone.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from callboard.errors import RunLost, StorageError
from callboard.storage.bus import RELEASED_RUN, Bus, OnNotification
from callboard.storage.sql import run_calls
from callboard.storage.sql.database import Database, Work
from callboard.storage.sql.tables import events, run_files, run_inputs, runs
from callboard.storage.values import GivenAnswer, LoggedFrame, LoggedRun, Orders

FRAMES_PER_QUERY = 500
NOBODY = ""
"""The owner of a run that was handed over: a server that is never there."""
RUNS_AT_ONCE = 20
"""The runs that are forgotten in one transaction, each with all its frames: others wait to write."""

OF_A_RUN = [column for column in runs.c if column.name not in ("request", "size_bytes", "begun_at", "listened_until")]
FIND_RUN = select(*OF_A_RUN).where(runs.c.id == bindparam("run"))
ADD_FRAMES = insert(events)
ADD_FILES = insert(run_files)
GOING_ON = select(runs.c.id, runs.c.owner, runs.c.epoch).where(runs.c.ended_at.is_(None))
READ_FRAMES = (
    select(events.c.seq, events.c.frame)
    .where(events.c.run_id == bindparam("run"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(FRAMES_PER_QUERY)
)


def _write_nothing(_: Connection) -> None:
    """Write nothing."""


class RunLog:
    """The events of runs that go on, and of those that ended a short while ago; which server owns which run.

    Each run belongs to one server, which writes into its log as long as it owns the run; any other may read it, and
    leave signals for its owner. Times are those of the database's clock. Every method that reads or writes raises
    `StorageError` if it cannot.

    `bus` wakes the other servers. It may lose notifications: they look by themselves every `sweep_seconds`.
    """

    def __init__(self, database: Database, server_id: str, bus: Bus) -> None:
        self._database = database
        self._bus = bus
        self._server_id = server_id
        # The runs that this server runs, or is about to, with their epochs.
        self._own: dict[str, int] = {}
        # Perhaps they are there, but they run nowhere, or without a log.
        self._unbegun: set[str] = set()
        self.sweep_seconds = database.sweep_seconds
        is_followed = runs.c.listened_until > database.dialect.now()
        is_mine = and_(runs.c.id == bindparam("run"), runs.c.epoch == bindparam("of_epoch"))
        size_bytes = runs.c.size_bytes + bindparam("more_bytes")
        move_on = update(runs).where(is_mine, runs.c.last_seq == bindparam("before"))
        self._move_on = move_on.values(last_seq=bindparam("last"), size_bytes=size_bytes).returning(
            is_followed.label("is_followed")
        )
        self._end = self._move_on.values(ended_at=database.dialect.now(), request=None)
        self._add_questions = database.dialect.insert(run_inputs).on_conflict_do_nothing()

    @asynccontextmanager
    async def open(self, lease_seconds: float, on_notification: OnNotification) -> AsyncIterator[None]:
        """Hold this server's lease until the block ends; afterwards other servers may own its runs at once.

        The lease is renewed again and again, so that others notice within `lease_seconds` when this server is gone.
        `on_notification` is called for what the bus brings. Raises `StorageError` if the database cannot be written at
        the beginning; a bus that cannot be reached is no error.
        """
        async with (
            self._database.hold_lease(self._server_id, lease_seconds),
            self._bus.open(self._server_id, on_notification),
        ):
            yield

    def was_alone(self) -> bool:
        """Return whether there was no other server, when this one last looked, that could own the runs of this one."""
        return self._database.was_alone()

    async def begins_alone(self) -> bool:
        """Return whether no other server holds a file, or had a lease when this one's was last renewed."""
        # Beside a file others may be that do not take its runs, and begin some.
        return await self._database.is_alone() if self._database.file else self._database.was_alone()

    async def is_alone(self) -> bool:
        """Return whether no other server uses the database; False where that is not known."""
        return await self._database.is_alone()

    async def begin(
        self, run: LoggedRun, request: bytes | None = None, max_of_user: int | None = None, first: bytes | None = None
    ) -> LoggedRun:
        """Make a new run this server's; return it, or the run of that id that is there already.

        `first` is the run's first frame. `request` is kept until the run has ended: another server needs it to continue
        the run. Raises `TooManyRuns` if `max_of_user` runs of its user are under way, at any server; a run without a
        user is not counted.
        """
        row = run_calls.make_row(self._database.dialect, run, self._server_id)
        row |= {"last_seq": run.last_seq, "request": request, "size_bytes": len(first or b"")}
        add_run = self._database.dialect.insert(runs).values(row).on_conflict_do_nothing(index_elements=["id"])

        def begin(connection: Connection) -> LoggedRun | None:
            if run_calls.has_room(self._database.dialect, connection, run, max_of_user):
                if connection.execute(add_run).rowcount:
                    if first:
                        connection.execute(ADD_FRAMES, {"run_id": run.run_id, "seq": 1, "frame": first})
                    return run
                return self._find_begun(connection.execute(FIND_RUN, {"run": run.run_id}).one(), run)
            there = connection.execute(FIND_RUN, {"run": run.run_id}).one_or_none()
            return self._find_begun(there, run) if there else None

        is_new = run.run_id not in self._own
        # Before it is there: else it would seem to be run by nobody.
        self._own.setdefault(run.run_id, run.epoch)
        self._unbegun.discard(run.run_id)
        try:
            found = await self._database.write(begin)
        except (StorageError, asyncio.CancelledError):
            if is_new:
                self._unbegun.add(run.run_id)
            raise
        if found is not run and is_new:
            del self._own[run.run_id]
        if found is None:
            raise run_calls.refuse(max_of_user)
        return found

    def _find_begun(self, there: Row[*tuple[Any, ...]], run: LoggedRun) -> LoggedRun:
        """Return the run that is there; `run` itself where it is that one, begun by this server and not shown yet."""
        found = _read_run(there)
        is_mine = there.owner == self._server_id and replace(found, is_cancelled=run.is_cancelled) == run
        return run if is_mine else found

    async def withdraw(self, run_id: str) -> None:
        """Forget a run that was taken and did not begin."""
        # At once: it may be begun anew meanwhile.
        self._own.pop(run_id, None)
        has_begun = runs.c.last_seq > 1
        await self._database.execute(
            delete(runs).where(runs.c.id == run_id, runs.c.owner == self._server_id, ~has_begun)
        )

    async def _withdraw_unbegun(self) -> None:
        for run_id in tuple(self._unbegun):
            # It may have been begun once more meanwhile.
            if run_id in self._unbegun:
                await self.withdraw(run_id)
                self._unbegun.discard(run_id)

    async def load_request(self, run_id: str) -> bytes | None:
        """Return what was kept with a run that goes on, None where nothing was."""
        kept: bytes | None = await self._database.scalar(select(runs.c.request).where(runs.c.id == run_id))
        return kept

    async def append(
        self,
        run: LoggedRun,
        frames: Sequence[LoggedFrame],
        write_rows: Work[None] = _write_nothing,
        find_rows: Work[object] = _write_nothing,
    ) -> None:
        """Store the frames that follow `run.last_seq`, and what `write_rows` writes, in one transaction.

        Then publish the frames if somebody follows the run elsewhere. A frame that is the last ends the run. If it
        turns out that the frames were committed before, `find_rows` is called instead. Raises `RunLost` if another
        server owns the run by now, or the run was deleted.
        """
        last = run.last_seq + len(frames)
        rows = [
            {"run_id": run.run_id, "seq": seq, "frame": frame.frame}
            for seq, frame in enumerate(frames, run.last_seq + 1)
        ]
        files = [
            {"run_id": run.run_id, "id": file_id, "url": url}
            for frame in frames
            for file_id, url in frame.files.items()
        ]
        questions = [{"run_id": run.run_id, "question": frame.question} for frame in frames if frame.question]
        more_bytes = sum(frame.size_bytes for frame in frames)
        place = {
            "run": run.run_id,
            "of_epoch": run.epoch,
            "before": run.last_seq,
            "last": last,
            "more_bytes": more_bytes,
        }
        is_last = bool(frames) and frames[-1].is_last
        move_on = self._end if is_last else self._move_on

        def append(connection: Connection) -> bool:
            if moved := connection.execute(move_on, place).first():
                write_rows(connection)
                if rows:
                    connection.execute(ADD_FRAMES, rows)
                if files:
                    connection.execute(ADD_FILES, files)
                if questions:
                    connection.execute(self._add_questions, questions)
                return bool(moved.is_followed)
            found = connection.execute(FIND_RUN, {"run": run.run_id}).one_or_none()
            # What was committed just before the connection was lost is there already.
            if found and (found.epoch, found.last_seq) == (run.epoch, last):
                find_rows(connection)
                return False
            raise RunLost(f"run {run.run_id!r} is another server's by now")

        try:
            is_followed = await self._database.write(append)
        except RunLost:
            self._let_go(run)
            raise
        if is_followed and frames:
            contents = [frame.frame for frame in frames]
            self._bus.publish(run.run_id, run.last_seq + 1, contents, is_ended=is_last)
        if is_last:
            self._let_go(run)

    def _let_go(self, run: LoggedRun) -> None:
        """Take note that this server runs a run no longer, in that epoch."""
        if self._own.get(run.run_id) == run.epoch:
            del self._own[run.run_id]

    async def find(self, run_ids: Collection[str]) -> dict[str, LoggedRun]:
        """Return those of some runs that there are, by their ids."""
        found = await self._database.fetch(select(*OF_A_RUN).where(runs.c.id.in_(run_ids)))
        return {row.id: _read_run(row) for row in found}

    async def read(self, run_id: str, after: int, max_bytes: int) -> list[bytes]:
        """Return the frames after `after`, at least one if there is one, of about `max_bytes` together."""

        def read(connection: Connection) -> list[bytes]:
            frames: list[bytes] = []
            size_bytes = 0
            for row in connection.execute(READ_FRAMES, {"run": run_id, "after": after}):
                frames.append(row.frame)
                size_bytes += len(row.frame)
                if size_bytes >= max_bytes:
                    break
            return frames

        return await self._database.read(read)

    async def file(self, run_id: str, file_id: str) -> str | None:
        """Return a file of a run as a `data:` URL, None where there is none."""
        is_meant = and_(run_files.c.run_id == run_id, run_files.c.id == file_id)
        url: str | None = await self._database.scalar(select(run_files.c.url).where(is_meant))
        return url

    async def listen_to(self, run_ids: Collection[str], seconds: float) -> set[str]:
        """Let the owners of runs know that somebody listens to them here, for so long from now on.

        Returns the runs whose owners know. The others have ended, or are being written: it is to be tried again soon.
        """
        # Not those that their owners are writing at this moment: two who wait for each other would stop everybody.
        free = (
            select(runs.c.id).where(runs.c.id.in_(run_ids), runs.c.ended_at.is_(None)).with_for_update(skip_locked=True)
        )
        until = self._database.dialect.now() + seconds
        note = update(runs).where(runs.c.id.in_(free)).values(listened_until=until).returning(runs.c.id)
        return await self._database.write(lambda connection: set(connection.scalars(note)))

    async def is_listened_to(self, run_id: str) -> bool:
        """Return whether somebody listens to a run at another server."""
        is_heard = and_(runs.c.id == run_id, runs.c.listened_until > self._database.dialect.now())
        return bool(await self._database.scalar(select(true()).where(is_heard)))

    async def cancel(self, run_id: str) -> None:
        """Ask the owner of a run, and whoever owns it after, for its end."""
        goes_on = and_(runs.c.id == run_id, runs.c.ended_at.is_(None))
        mark_cancelled = update(runs).where(goes_on).values(is_cancelled=True)
        await self._database.execute(mark_cancelled)
        self._bus.publish(run_id)

    async def answer(self, run_id: str, question: str, answer: GivenAnswer) -> bool:
        """Keep the answer to a question; False where there is no such question, or it has one."""
        is_open = and_(run_inputs.c.run_id == run_id, run_inputs.c.question == question, run_inputs.c.answer.is_(None))
        keep_answer = update(run_inputs).where(is_open).values(answer=answer.to_json())
        of_question = and_(run_inputs.c.run_id == run_id, run_inputs.c.question == question)
        find_answer = select(run_inputs.c.answer).where(of_question)
        was_first = False

        def write(connection: Connection) -> bool:
            nonlocal was_first
            is_first = connection.execute(keep_answer).rowcount > 0
            # It may be there from the first time that this was run.
            is_there = was_first and not is_first and connection.scalar(find_answer) == answer.to_json()
            was_first = was_first or is_first
            return is_first or is_there

        is_kept = await self._database.write(write)
        if is_kept:
            self._bus.publish(run_id)
        return is_kept

    async def orders(self, run_ids: Collection[str]) -> dict[str, Orders]:
        """Return what was asked of some runs, by their ids; runs of which nothing was asked are left out."""
        has_answer = and_(run_inputs.c.run_id == runs.c.id, run_inputs.c.answer.is_not(None))
        found = await self._database.fetch(
            select(runs.c.id, runs.c.is_cancelled, run_inputs.c.question, run_inputs.c.answer)
            .outerjoin(run_inputs, has_answer)
            .where(runs.c.id.in_(run_ids), or_(runs.c.is_cancelled, run_inputs.c.answer.is_not(None)))
        )
        cancelled = {row.id: row.is_cancelled for row in found}
        return {
            run_id: Orders(
                is_cancelled,
                {row.question: GivenAnswer.from_json(row.answer) for row in found if row.id == run_id and row.question},
            )
            for run_id, is_cancelled in cancelled.items()
        }

    async def take_over(self) -> list[LoggedRun]:
        """Own the runs of servers that were not heard of in time; return them, each in its new epoch.

        And those of this server that it does not run: nobody was told that it had taken them.
        """
        await self._withdraw_unbegun()
        going_on = await self._database.fetch(GOING_ON)
        owners = {row.owner for row in going_on} - {self._server_id}
        gone = await self._database.find_dead_servers(owners) if owners else owners
        idle = [row.id for row in going_on if row.owner == self._server_id and self._own.get(row.id) != row.epoch]
        if not gone and not idle:
            return []
        # One that another server has taken meanwhile has another owner.
        is_idle = and_(runs.c.owner == self._server_id, runs.c.id.in_(idle))
        is_left = and_(runs.c.ended_at.is_(None), or_(runs.c.owner.in_(gone), is_idle))
        losses = runs.c.losses + case((runs.c.owner.in_([NOBODY, self._server_id]), 0), else_=1)
        left = select(runs.c.id).where(is_left).with_for_update(skip_locked=True)
        mine = {"owner": self._server_id, "epoch": runs.c.epoch + 1, "losses": losses}
        age_seconds = (self._database.dialect.now() - runs.c.begun_at).label("age_seconds")
        take_runs = update(runs).where(runs.c.id.in_(left)).values(mine).returning(*OF_A_RUN, age_seconds)

        def take(connection: Connection) -> list[LoggedRun]:
            return [replace(_read_run(row), age_seconds=row.age_seconds) for row in connection.execute(take_runs)]

        taken_over = await self._database.write(take)
        self._own.update({run.run_id: run.epoch for run in taken_over})
        return taken_over

    async def hand_over(self, run: LoggedRun) -> None:
        """Let any server that is there take over a run of this one's, which is not at fault; raises `RunLost`."""
        is_mine = and_(runs.c.id == run.run_id, runs.c.epoch == run.epoch, runs.c.owner == self._server_id)
        # In an epoch of its own: what is still on its way from here is refused.
        free_run = update(runs).where(is_mine).values(owner=NOBODY, epoch=runs.c.epoch + 1)
        is_done = await self._database.execute(free_run)
        self._let_go(run)
        if not is_done:
            raise RunLost(f"run {run.run_id!r} is another server's by now")
        self._bus.publish(RELEASED_RUN)

    async def of_user(self, user_id: str) -> list[LoggedRun]:
        """Return the runs of a user, those that have ended included."""
        rows = await self._database.fetch(select(*OF_A_RUN).where(runs.c.user_id == user_id))
        return [_read_run(row) for row in rows]

    async def forget_user(self, user_id: str) -> int:
        """Forget the runs of a user with their frames and files; returns how many there were.

        What the owner of one that goes on still writes is not kept.
        """
        return await self._database.delete_in_batches(runs, runs.c.user_id == user_id, RUNS_AT_ONCE)

    async def drop(self, ended_before_seconds: float, max_user_bytes: int) -> int:
        """Forget runs that ended longer ago than that, and a user's oldest beyond so many bytes; return how many."""
        so_far = func.sum(runs.c.size_bytes).over(
            partition_by=func.coalesce(runs.c.user_id, ""), order_by=runs.c.ended_at.desc()
        )
        has_ended = runs.c.ended_at.is_not(None)
        ended = select(runs.c.id, runs.c.ended_at, so_far.label("so_far")).where(has_ended).subquery()
        is_old = ended.c.ended_at < self._database.dialect.now() - ended_before_seconds
        too_much = ended.c.so_far > max_user_bytes
        is_meant = runs.c.id.in_(select(ended.c.id).where(or_(is_old, too_much)))
        return await self._database.delete_in_batches(runs, is_meant, RUNS_AT_ONCE)


def _read_run(row: Row[*tuple[object, ...]]) -> LoggedRun:
    return LoggedRun(
        row.id,
        row.agent_id,
        row.chat_id,
        row.message_id,
        row.user_id,
        row.epoch,
        row.last_seq,
        row.ended_at is not None,
        row.is_cancelled,
        row.losses,
        owner=row.owner,
    )
