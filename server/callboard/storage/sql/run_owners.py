"""The owners of runs whose log is not in the database: what an earlier one writes there the journal refuses by them."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Select, and_, delete, or_, select, update

from callboard.storage.sql import run_calls
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import messages, runs
from callboard.storage.values import LoggedRun

FORGOTTEN_AT_ONCE = 100


class RunOwners:
    """Which server owns which run, and in which epoch. Every method raises `StorageError`."""

    def __init__(self, database: Database, server_id: str) -> None:
        self._database = database
        self._server_id = server_id

    async def begin(self, run: LoggedRun, max_of_user: int | None = None) -> LoggedRun:
        """Write a new run down as this server's; return it, or the one of that id that is there already."""
        row = run_calls.make_row(self._database.dialect, run, self._server_id)
        add_run = self._database.dialect.insert(runs).values(**row, last_seq=0).on_conflict_do_nothing()

        mine = and_(runs.c.id == run.run_id, runs.c.owner == self._server_id, runs.c.epoch == run.epoch)
        was_added = False

        def begin(connection: Connection) -> bool:
            nonlocal was_added
            # It may be there from the first time that this was run.
            if was_added and connection.scalar(select(runs.c.id).where(mine)):
                return True
            has_room = run_calls.has_room(self._database.dialect, connection, run, max_of_user)
            was_added = has_room and connection.execute(add_run).rowcount > 0
            return was_added

        if await self._database.write(begin):
            return run
        found = await self._database.fetch(select(runs).where(runs.c.id == run.run_id))
        if not found:
            raise run_calls.refuse(max_of_user)
        [there] = found
        return LoggedRun(
            there.id,
            there.agent_id,
            there.chat_id,
            there.message_id,
            there.user_id,
            there.epoch,
            is_ended=there.ended_at is not None,
        )

    async def take(self, run: LoggedRun) -> float | None:
        """Write a run down as this server's in its new epoch; return how many seconds ago it began.

        None where it has ended, or is further than that. A transaction of its owner that is under way is waited for.
        """
        is_newer = or_(runs.c.epoch < run.epoch, and_(runs.c.epoch == run.epoch, runs.c.owner == self._server_id))
        goes_on = and_(runs.c.id == run.run_id, runs.c.ended_at.is_(None))
        take_run = update(runs).where(goes_on, is_newer).values(owner=self._server_id, epoch=run.epoch)
        take_run = take_run.returning(self._database.dialect.now() - runs.c.begun_at)
        return await self._database.write(lambda connection: connection.scalar(take_run))

    async def end(self, run_id: str) -> None:
        """Write down that a run has ended."""
        goes_on = and_(runs.c.id == run_id, runs.c.ended_at.is_(None))
        await self._database.execute(update(runs).where(goes_on).values(ended_at=self._database.dialect.now()))

    async def has_written(self, run: LoggedRun) -> bool:
        """Return whether anything of a run is in its chat: before that no tool of it has run."""
        return bool(await self._database.fetch(_written_of(run).limit(1)))

    async def forget(self, run: LoggedRun) -> None:
        """Forget a run of which nothing is in its chat, and which is still in that epoch."""
        is_meant = and_(runs.c.id == run.run_id, runs.c.epoch == run.epoch, ~_written_of(run).exists())
        await self._database.execute(delete(runs).where(is_meant))

    async def withdraw(self, run_id: str) -> None:
        """Forget a run of this server that did not begin."""
        is_meant = and_(runs.c.id == run_id, runs.c.owner == self._server_id, runs.c.ended_at.is_(None))
        await self._database.execute(delete(runs).where(is_meant))

    async def list_going_on(self) -> Mapping[str, str]:
        """Return the owners of the runs that have not ended, by the ids of these."""
        rows = await self._database.fetch(select(runs.c.id, runs.c.owner).where(runs.c.ended_at.is_(None)))
        return {row.id: row.owner for row in rows}

    async def ids_of_user(self, user_id: str) -> list[str]:
        """Return the ids of a user's runs, those that have ended included."""
        return [row.id for row in await self._database.fetch(select(runs.c.id).where(runs.c.user_id == user_id))]

    async def forget_all(self, run_ids: Sequence[str]) -> None:
        """Forget runs, whether they have ended or not."""
        for start in range(0, len(run_ids), FORGOTTEN_AT_ONCE):
            some = run_ids[start : start + FORGOTTEN_AT_ONCE]
            await self._database.execute(delete(runs).where(runs.c.id.in_(some)))

    async def drop(self, ended_before_seconds: float) -> int:
        """Forget the runs that ended longer ago than that; return how many."""
        is_old = runs.c.ended_at < self._database.dialect.now() - ended_before_seconds
        return await self._database.execute(delete(runs).where(is_old))


def _written_of(run: LoggedRun) -> Select[tuple[int]]:
    return select(messages.c.id).where(messages.c.chat_id == run.chat_id, messages.c.run_id == run.run_id)
