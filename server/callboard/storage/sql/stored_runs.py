"""The runs in the database: their events and owners, and signals for the server that runs them.

A connection may be lost after a commit and before the server learns of it. Therefore a write that cannot be repeated
first checks whether it was committed before. A run that this server owns in the database without running it is taken
over like the runs of dead servers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Integer,
    Row,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from callboard.errors import RunConflict, RunEnding, RunLost, StorageError, TooManyRuns
from callboard.storage.bus import RELEASED_RUN, Bus, OnNotification
from callboard.storage.sql.database import Database, Work
from callboard.storage.sql.tables import chats, events, messages, now, run_files, run_inputs, runs
from callboard.storage.sql.waiting import (
    IS_OPEN,
    UNOWNED,
    WAITS,
    begin_again,
    begin_again_if_answered,
    let_question_wait,
)
from callboard.storage.values import MESSAGE_PREFIX, GivenAnswer, RunSignals, StoredFrame, StoredRun, put_message

FRAMES_PER_QUERY = 500
NO_MORE_MESSAGES = f"{MESSAGE_PREFIX}~"
"""The id of the row that says that the run takes no more messages."""
RUNS_AT_ONCE = 20
"""The runs that one transaction deletes, with all their frames; small, because other writes wait for it."""

RUN_COLUMNS = [
    column for column in runs.c if column.name not in ("request", "size_bytes", "begun_at", "listened_until")
]
OF_NEW_RUN = ("agent_id", "chat_id", "message_id", "user_id", "epoch", "last_seq")
NEW_ROW = (*OF_NEW_RUN, "id", "owner", "request", "size_bytes")
FIND_RUN = select(*RUN_COLUMNS).where(runs.c.id == bindparam("run"))
ADVANCE_RUN = (
    update(runs)
    .where(
        runs.c.id == bindparam("run"),
        runs.c.epoch == bindparam("of_epoch"),
        runs.c.last_seq == bindparam("before"),
    )
    .values(last_seq=bindparam("last"), size_bytes=runs.c.size_bytes + bindparam("more_bytes"))
    .returning((runs.c.listened_until > now()).label("is_followed"))
)
LET_RUN_WAIT = ADVANCE_RUN.values(ended_at=now())
END_RUN = LET_RUN_WAIT.values(request=None)
ADD_FRAMES = insert(events)
ADD_FILES = insert(run_files)
IS_ACTIVE = runs.c.ended_at.is_(None)
ACTIVE_RUNS = select(runs.c.id, runs.c.owner, runs.c.epoch).where(IS_ACTIVE)
READ_FRAMES = (
    select(events.c.seq, events.c.frame)
    .where(events.c.run_id == bindparam("run"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(FRAMES_PER_QUERY)
)


def _write_nothing(_: Connection) -> None:
    """Write nothing."""


class StoredRuns:
    """The events and owners of active runs, and of runs that ended recently.

    One server owns a run and writes its events; other servers may read the events and leave signals for the owner.
    Times are from the database's clock. Every method that reads or writes raises `StorageError` if the database fails.

    `bus` notifies the other servers. It may lose notifications, so servers that know of others also query the database
    every `sweep_seconds`.
    """

    def __init__(self, database: Database, server_id: str, bus: Bus) -> None:
        self._database = database
        self._bus = bus
        self._server_id = server_id
        # The epochs of the runs that this server runs or is about to run.
        self._own: dict[str, int] = {}
        # Runs that go on without the database: their rows may exist, and are deleted when the database works.
        self._unstored: set[str] = set()
        self.sweep_seconds = database.sweep_seconds
        self.on_released: Callable[[], None] = lambda: None
        """Called when this server has released a run that any server may take over."""
        self._add_questions = database.insert(run_inputs).on_conflict_do_nothing()
        self._add_run = _make_insert(database)

    @asynccontextmanager
    async def open(self, lease_seconds: float, on_notification: OnNotification) -> AsyncIterator[None]:
        """Hold this server's lease until the block ends; afterwards other servers may take over its runs at once.

        The lease is renewed periodically, so that other servers notice within `lease_seconds` if this one is dead.
        `on_notification` is called for each notification from the bus. Raises `StorageError` if the database cannot be
        written at the start; an unreachable bus is no error.
        """
        async with (
            self._database.hold_lease(self._server_id, lease_seconds),
            self._bus.open(self._server_id, on_notification),
        ):
            yield

    async def is_alone(self) -> bool:
        """Return whether no other server uses the database, as far as this one knows."""
        return await self._database.is_alone()

    async def begin(
        self, run: StoredRun, request: bytes | None = None, max_of_user: int | None = None, first: bytes | None = None
    ) -> StoredRun:
        """Insert a new run that this server owns; return `run`, or the existing run with that id.

        `first` is the run's first frame. `request` is stored until the run has ended, so that another server can
        continue the run. Raises `TooManyRuns` if the user has `max_of_user` active runs on all servers; runs without a
        user are not counted. Raises `RunConflict` if a run with that id has ended, and only its messages are left.
        """
        row = {name: getattr(run, name) for name in OF_NEW_RUN}
        row |= {"id": run.run_id, "owner": self._server_id, "request": request, "size_bytes": len(first or b"")}

        def begin(connection: Connection) -> StoredRun | None:
            if max_of_user is not None and run.user_id is not None:
                # Otherwise runs of the user that begin at the same time would not count each other.
                self._database.serialize_writes(connection, f"runs/{run.user_id}")
            if connection.execute(self._add_run, {**row, "most": max_of_user}).rowcount:
                if first:
                    connection.execute(ADD_FRAMES, {"run_id": run.run_id, "seq": 1, "frame": first})
                return run
            existing = connection.execute(FIND_RUN, {"run": run.run_id}).one_or_none()
            return self._read_existing(existing, run) if existing else None

        is_new = run.run_id not in self._own
        # Before the write; otherwise `take_over` could see a row that this server owns and does not run.
        self._own.setdefault(run.run_id, run.epoch)
        self._unstored.discard(run.run_id)
        try:
            found = await self._database.write(begin)
        except (StorageError, asyncio.CancelledError):
            if is_new:
                self._unstored.add(run.run_id)
            raise
        if found is not run and is_new:
            del self._own[run.run_id]
        if found is None:
            if await self._database.scalar(select(true()).where(_has_messages(run.run_id, run.chat_id))):
                raise RunConflict(
                    f"run {run.run_id!r} has ended and its events are deleted: read the chat, or choose another run_id"
                )
            raise TooManyRuns(f"{max_of_user} runs of this user are under way: try again when one has ended")
        return found

    def _read_existing(self, row: Row[*tuple[Any, ...]], run: StoredRun) -> StoredRun:
        """Return the run in a row; `run` itself if an earlier attempt of this server has inserted it."""
        found = _read_run(row)
        is_mine = row.owner == self._server_id and replace(found, is_cancelled=run.is_cancelled) == run
        return run if is_mine else found

    async def delete(self, run_id: str) -> None:
        """Delete a run that was inserted, and has not begun or goes on without the database."""
        # Before the delete: the run may be begun again meanwhile.
        self._own.pop(run_id, None)
        # An answer may have begun it again, if its end was stored and the commit was not confirmed.
        is_mine = runs.c.owner.in_([self._server_id, UNOWNED])
        await self._database.execute(delete(runs).where(runs.c.id == run_id, is_mine))

    def note_unstored(self, run: StoredRun) -> None:
        """Note that a run goes on without the database: its row is deleted when the database works again.

        Otherwise a server would take the run over later, and repeat its calls.
        """
        self._unstored.add(run.run_id)

    def leave(self, run: StoredRun) -> None:
        """Note that this server no longer runs the run in this epoch: any server may take it over, also this one."""
        if self._own.get(run.run_id) == run.epoch:
            del self._own[run.run_id]

    async def delete_unstored(self) -> None:
        """Delete the rows of the runs that go on, or have ended, without the database."""
        for run_id in tuple(self._unstored):
            # The run may have been begun again meanwhile.
            if run_id in self._unstored:
                await self.delete(run_id)
                self._unstored.discard(run_id)

    async def load_request(self, run_id: str) -> bytes | None:
        """Return the request of an active run, None if it has none or has ended."""
        request: bytes | None = await self._database.scalar(select(runs.c.request).where(runs.c.id == run_id))
        return request

    async def append(
        self,
        run: StoredRun,
        frames: Sequence[StoredFrame],
        write_rows: Work[None] = _write_nothing,
        reload_row_ids: Work[object] = _write_nothing,
    ) -> None:
        """Store the frames that follow `run.last_seq` and call `write_rows`, in one transaction.

        If an earlier attempt has already committed the frames, `reload_row_ids` is called instead. A frame with
        `is_last` ends the run, and one with `waits_for` ends it until one of these questions has an answer. After the
        commit other servers are notified if one follows the run. Raises `RunLost` if another server has taken
        over the run, or the run was deleted.
        """
        last = run.last_seq + len(frames)
        place = {"run": run.run_id, "of_epoch": run.epoch, "before": run.last_seq, "last": last}
        more_bytes = sum(frame.size_bytes for frame in frames)
        is_last = bool(frames) and frames[-1].is_last
        waits_for = frames[-1].waits_for if frames else ()
        advance = END_RUN if is_last else LET_RUN_WAIT if waits_for else ADVANCE_RUN
        is_due = False

        def append(connection: Connection) -> bool:
            nonlocal is_due
            if moved := connection.execute(advance, {**place, "more_bytes": more_bytes}).first():
                write_rows(connection)
                self._add_frames(connection, run, frames)
                is_due = bool(waits_for) and begin_again_if_answered(connection, run.run_id, waits_for)
                return bool(moved.is_followed)
            found = connection.execute(FIND_RUN, {"run": run.run_id}).one_or_none()
            # An earlier attempt was committed, and the connection was lost before the server learned of it.
            if found and (found.epoch, found.last_seq) == (run.epoch, last):
                reload_row_ids(connection)
                return False
            raise RunLost(f"run {run.run_id!r} was taken over by another server, or deleted")

        try:
            is_followed = await self._database.write(append)
        except RunLost:
            self.leave(run)
            raise
        if is_followed and frames:
            self._bus.publish(run.run_id)
        if is_last or waits_for:
            self.leave(run)
        if is_due:
            self._publish_release()

    def _add_frames(self, connection: Connection, run: StoredRun, frames: Sequence[StoredFrame]) -> None:
        """Insert the frames that follow `run.last_seq`, with their files and questions."""
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
        if rows:
            connection.execute(ADD_FRAMES, rows)
        if files:
            connection.execute(ADD_FILES, files)
        if questions:
            connection.execute(self._add_questions, questions)

    def _publish_release(self) -> None:
        """Tell all servers that a run may be taken over."""
        self._bus.publish(RELEASED_RUN)
        self.on_released()

    async def find(self, run_ids: Collection[str]) -> dict[str, StoredRun]:
        """Return the existing runs among `run_ids`, by id."""
        found = await self._database.fetch(select(*RUN_COLUMNS).where(runs.c.id.in_(run_ids)))
        return {row.id: _read_run(row) for row in found}

    async def read(self, run_id: str, after: int, max_bytes: int) -> list[bytes]:
        """Return the frames after number `after`, up to about `max_bytes`, but at least one if there is one."""

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
        """Return a file of a run as a `data:` URL, None if it does not exist."""
        query = select(run_files.c.url).where(run_files.c.run_id == run_id, run_files.c.id == file_id)
        url: str | None = await self._database.scalar(query)
        return url

    async def mark_listened(self, run_ids: Collection[str], seconds: float) -> set[str]:
        """Mark runs of other servers as listened to for the next `seconds`; return the ids of the marked runs.

        The others have ended, or their rows are locked by a write: the caller tries again soon.
        """
        # Skip locked rows: waiting for them could deadlock with their writers.
        free = (
            select(runs.c.id).where(runs.c.id.in_(run_ids), runs.c.ended_at.is_(None)).with_for_update(skip_locked=True)
        )
        until = now() + seconds
        note = update(runs).where(runs.c.id.in_(free)).values(listened_until=until).returning(runs.c.id)
        return await self._database.write(lambda connection: set(connection.scalars(note)))

    async def is_listened_to(self, run_id: str) -> bool:
        """Return whether a client listens to a run at another server."""
        query = select(true()).where(runs.c.id == run_id, runs.c.listened_until > now())
        return bool(await self._database.scalar(query))

    async def cancel(self, run_id: str) -> None:
        """Set the cancel flag of a run for its current and later owners; one that waits begins again, to be ended."""

        def write(connection: Connection) -> bool:
            connection.execute(update(runs).where(runs.c.id == run_id, IS_OPEN).values(is_cancelled=True))
            return begin_again(connection, run_id)

        is_released = await self._database.write(write)
        self._bus.publish(run_id)
        if is_released:
            self._publish_release()

    async def let_wait(self, run_id: str, question: str) -> None:
        """Let a question without an answer in time wait, unless it has been answered."""
        await self._database.write(lambda connection: let_question_wait(connection, run_id, question))

    async def answer(self, run_id: str, question: str, answer: GivenAnswer) -> bool:
        """Store the answer to a question; False if it does not exist, has an answer already, or the run has ended.

        A run that waits for it begins again.
        """
        of_question = and_(run_inputs.c.run_id == run_id, run_inputs.c.question == question)
        find_answer = select(run_inputs.c.answer).where(of_question)
        set_answer = (
            update(run_inputs).where(of_question, run_inputs.c.answer.is_(None)).values(answer=answer.to_json())
        )
        if answer.value is None:
            # A question that waits needs no stored "no answer".
            set_answer = set_answer.where(run_inputs.c.waiting_since.is_(None))
        was_first = is_released = False

        def write(connection: Connection) -> bool:
            nonlocal was_first, is_released
            # Locks the run, so that its owner cannot end it between the answer and `begin_again`.
            is_open = connection.execute(_lock_open(run_id)).first() is not None
            is_first = is_open and connection.execute(set_answer).rowcount > 0
            # An earlier attempt of this write may have been committed.
            is_stored = was_first and not is_first and connection.scalar(find_answer) == answer.to_json()
            was_first = was_first or is_first
            is_released = (is_first or is_stored) and begin_again(connection, run_id)
            return is_first or is_stored

        is_accepted = await self._database.write(write)
        if is_accepted:
            self._bus.publish(run_id)
        if is_released:
            self._publish_release()
        return is_accepted

    async def add_message(self, run_id: str, content: str) -> tuple[str, Mapping[str, str]]:
        """Store a message of the user to a run; return its id, and all messages so far by their ids, in order.

        Raises `RunEnding`, `RequestTooLarge`, `StorageError`.
        """
        unique = uuid4().hex

        def write(connection: Connection) -> tuple[str, Mapping[str, str]]:
            is_open = connection.execute(_lock_open(run_id)).first() is not None
            known = _read_messages(connection, run_id)
            is_open = known.pop(NO_MORE_MESSAGES, None) is None and is_open
            # An earlier attempt of this write may have been committed.
            if message_id := next((one for one in known if one.endswith(unique)), None):
                return message_id, known
            if not is_open:
                raise RunEnding(run_id)
            message_id = put_message(known, content, unique)
            row = {"run_id": run_id, "question": message_id, "answer": GivenAnswer(content).to_json()}
            connection.execute(self._add_questions, row)
            return message_id, known

        added = await self._database.write(write)
        self._bus.publish(run_id)
        return added

    def close_messages(self, connection: Connection, run_id: str, read: Collection[str]) -> Mapping[str, str]:
        """Return the messages of a run that are not in `read`, in order; if there are none, the run takes no more.

        The transaction has locked the run's row.
        """
        known = _read_messages(connection, run_id)
        unread = {one: text for one, text in known.items() if one not in read and one != NO_MORE_MESSAGES}
        if not unread:
            row = {"run_id": run_id, "question": NO_MORE_MESSAGES, "answer": GivenAnswer("").to_json()}
            connection.execute(self._add_questions, row)
        return unread

    async def list_open_questions(self, chat_id: str, agent_id: str, user_id: str) -> set[tuple[str, str]]:
        """Return the questions of an agent in a user's chat that have no answer, as the ids of run and question."""
        is_open = and_(run_inputs.c.answer.is_(None), IS_OPEN)
        of_chat = and_(runs.c.chat_id == chat_id, runs.c.agent_id == agent_id, runs.c.user_id == user_id)
        found = await self._database.fetch(
            select(runs.c.id, run_inputs.c.question).join(run_inputs).where(of_chat, is_open)
        )
        return {(row.id, row.question) for row in found}

    async def signals(self, run_ids: Collection[str]) -> dict[str, RunSignals]:
        """Return the signals of runs by run id; runs without signals are left out."""
        is_signal = or_(run_inputs.c.answer.is_not(None), run_inputs.c.waiting_since.is_not(None))
        found = await self._database.fetch(
            select(runs.c.id, runs.c.is_cancelled, *run_inputs.c)
            .outerjoin(run_inputs, and_(run_inputs.c.run_id == runs.c.id, is_signal))
            .where(runs.c.id.in_(run_ids), or_(runs.c.is_cancelled, is_signal))
        )
        return {
            run_id: _read_signals([row for row in found if row.id == run_id]) for run_id in {row.id for row in found}
        }

    async def take_over(self) -> list[StoredRun]:
        """Take over the runs of dead servers and unowned runs; return them, each with its new epoch.

        Also takes over runs that this server owns and does not run: an earlier takeover was committed, but the
        connection was lost before the server learned of it.
        """
        await self.delete_unstored()
        active = await self._database.fetch(ACTIVE_RUNS)
        owners = {row.owner for row in active} - {self._server_id}
        dead = await self._database.find_dead_servers(owners) if owners else owners
        idle = [row.id for row in active if row.owner == self._server_id and self._own.get(row.id) != row.epoch]
        if not dead and not idle:
            return []
        # Checks the owner again: another server may have taken over the run meanwhile.
        is_idle = and_(runs.c.owner == self._server_id, runs.c.id.in_(idle))
        is_left = and_(IS_ACTIVE, or_(runs.c.owner.in_(dead), is_idle))
        losses = runs.c.losses + case((runs.c.owner.in_([UNOWNED, self._server_id]), 0), else_=1)
        left = select(runs.c.id).where(is_left).with_for_update(skip_locked=True)
        mine = {"owner": self._server_id, "epoch": runs.c.epoch + 1, "losses": losses}
        age_seconds = (now() - runs.c.begun_at).label("age_seconds")
        take_runs = update(runs).where(runs.c.id.in_(left)).values(mine).returning(*RUN_COLUMNS, age_seconds)

        def take(connection: Connection) -> list[StoredRun]:
            return [_read_run(row) for row in connection.execute(take_runs)]

        taken_over = await self._database.write(take)
        self._own.update({run.run_id: run.epoch for run in taken_over})
        return taken_over

    async def release(self, run: StoredRun) -> None:
        """Release a run for any server, without counting it as a loss; raises `RunLost`."""
        is_mine = and_(runs.c.id == run.run_id, runs.c.epoch == run.epoch, runs.c.owner == self._server_id)
        # A new epoch, so that later writes of this server are refused.
        release = update(runs).where(is_mine).values(owner=UNOWNED, epoch=runs.c.epoch + 1)
        is_released = await self._database.execute(release)
        self.leave(run)
        if not is_released:
            raise RunLost(f"run {run.run_id!r} was taken over by another server, or deleted")
        self._publish_release()

    async def of_user(self, user_id: str) -> list[StoredRun]:
        """Return the runs of a user, including ended ones."""
        rows = await self._database.fetch(select(*RUN_COLUMNS).where(runs.c.user_id == user_id))
        return [_read_run(row) for row in rows]

    async def forget_user(self, user_id: str) -> int:
        """Delete the runs of a user with their frames and files; return their number.

        Later writes to an active run raise `RunLost` at its owner.
        """
        return await self._database.delete_in_batches(runs, runs.c.user_id == user_id, RUNS_AT_ONCE)

    async def drop(self, ended_before_seconds: float, max_user_bytes: int) -> int:
        """Delete runs that ended more than `ended_before_seconds` ago; return the number of deleted runs.

        Also deletes the oldest ended runs of a user whose ended runs are larger than `max_user_bytes` together, and
        waiting runs without a chat: it was deleted before they ended, and nobody can see or answer them.
        """
        so_far = func.sum(runs.c.size_bytes).over(
            partition_by=func.coalesce(runs.c.user_id, ""), order_by=runs.c.ended_at.desc()
        )
        has_ended = and_(runs.c.ended_at.is_not(None), runs.c.request.is_(None))
        ended = select(runs.c.id, runs.c.ended_at, so_far.label("so_far")).where(has_ended).subquery()
        is_old = ended.c.ended_at < now() - ended_before_seconds
        is_too_large = ended.c.so_far > max_user_bytes
        has_no_chat = and_(WAITS, ~exists().where(chats.c.id == runs.c.chat_id))
        condition = or_(runs.c.id.in_(select(ended.c.id).where(or_(is_old, is_too_large))), has_no_chat)
        return await self._database.delete_in_batches(runs, condition, RUNS_AT_ONCE)


def _lock_open(run_id: str) -> Executable:
    """Return the statement that locks a run that has not ended, and finds no other run."""
    return select(runs.c.id).where(runs.c.id == run_id, IS_OPEN).with_for_update()


def _read_messages(connection: Connection, run_id: str) -> dict[str, str]:
    """Return the messages of a run in order, by their ids; also `NO_MORE_MESSAGES` if the run takes no more."""
    query = select(run_inputs.c.question, run_inputs.c.answer).where(
        run_inputs.c.run_id == run_id, run_inputs.c.question.startswith(MESSAGE_PREFIX)
    )
    found = sorted(connection.execute(query).all())
    return {row.question: GivenAnswer.from_json(row.answer).value for row in found}


def _make_insert(database: Database) -> Executable:
    """Return the statement that inserts a run, unless its id exists or its user has `most` active runs.

    An id also exists if only the messages of its run are left.
    """
    row = {name: bindparam(name, type_=runs.c[name].type) for name in NEW_ROW}
    # `=` is never true for null, so runs without a user are not counted.
    of_user = select(func.count()).where(IS_ACTIVE, runs.c.user_id == row["user_id"]).scalar_subquery()
    most = bindparam("most", type_=Integer)
    may_begin = and_(or_(most.is_(None), of_user < most), ~_has_messages(row["id"], row["chat_id"]))
    new = select(*row.values(), now()).where(may_begin)
    add: Executable = database.insert(runs).from_select([*row, "begun_at"], new).on_conflict_do_nothing()
    return add


def _has_messages(run_id: object, chat_id: object) -> ColumnElement[bool]:
    """Return the condition that a chat has messages of a run."""
    return exists().where(messages.c.chat_id == chat_id, messages.c.run_id == run_id)


def _read_run(row: Row[*tuple[object, ...]]) -> StoredRun:
    columns = StoredRun.__dataclass_fields__.keys() & row._mapping.keys()
    shared: dict[str, Any] = {name: row._mapping[name] for name in columns}
    return StoredRun(row.id, **shared, is_ended=row.ended_at is not None)


def _read_signals(rows: Sequence[Row[*tuple[Any, ...]]]) -> RunSignals:
    """Return the signals in the rows of one run."""
    given = {row.question: GivenAnswer.from_json(row.answer) for row in rows if row.answer is not None}
    messages = {one: given.pop(one).value for one in sorted(given) if one.startswith(MESSAGE_PREFIX)}
    messages.pop(NO_MORE_MESSAGES, None)
    return RunSignals(
        rows[0].is_cancelled,
        given,
        frozenset(row.question for row in rows if row.waiting_since is not None and row.answer is None),
        any(row.waiting_since is not None for row in rows),
        messages,
    )
