"""Counts each user's calls and tokens of the current day in one row, shared by all servers of the database."""

from sqlalchemy import ColumnElement, Connection, case, or_, select, true

from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import now, usage
from callboard.storage.values import SECONDS_A_DAY, DayUsage


class Usage:
    """A user's usage of the current day in UTC, by the database's clock."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id

    async def today(self) -> DayUsage:
        """Return today's usage and the time until the day ends."""

        def read(connection: Connection) -> DayUsage:
            seconds = self._read_clock(connection)
            row = connection.execute(select(usage).where(usage.c.user_id == self._user_id)).one_or_none()
            ends_in_seconds = SECONDS_A_DAY - seconds % SECONDS_A_DAY
            if row is None or row.day != seconds // SECONDS_A_DAY:
                return DayUsage(0, 0, ends_in_seconds)
            return DayUsage(row.calls, row.tokens, ends_in_seconds)

        return await self._database.read(read)

    async def take_call(self, limit: int) -> bool:
        """Count one more call unless today's calls have reached `limit`; return whether the call was counted."""
        return await self._add(usage.c.calls < limit, calls=1)

    async def add_tokens(self, tokens: int) -> None:
        """Add tokens to today's usage."""
        await self._add(true(), tokens=tokens)

    async def _add(self, has_room: ColumnElement[bool], calls: int = 0, tokens: int = 0) -> bool:
        def add(connection: Connection) -> bool:
            day = int(self._read_clock(connection) // SECONDS_A_DAY)
            row = self._database.insert(usage).values(user_id=self._user_id, day=day, calls=calls, tokens=tokens)
            is_today = usage.c.day == day
            counted = {
                "day": day,
                "calls": case((is_today, usage.c.calls), else_=0) + calls,
                "tokens": case((is_today, usage.c.tokens), else_=0) + tokens,
            }
            # One statement: if two calls run concurrently, the second must see the count of the first.
            put = row.on_conflict_do_update(index_elements=["user_id"], set_=counted, where=or_(~is_today, has_room))
            return connection.execute(put).rowcount > 0

        return await self._database.write(add)

    @staticmethod
    def _read_clock(connection: Connection) -> float:
        return connection.execute(select(now())).scalar_one()
