"""What a user has used up of the day, counted in one row: servers that share the database count together."""

from typing import Any

from sqlalchemy import BigInteger, Connection, Executable, Integer, bindparam, case, delete, or_, select

from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import usage
from callboard.storage.store import Usage
from callboard.storage.values import SECONDS_A_DAY, DayUsage


class UsageStatements:
    """What is asked of the database for each call and each answer of a model: built once, for that takes longest."""

    def __init__(self, database: Database) -> None:
        day = bindparam("today", type_=Integer)
        calls = bindparam("more_calls", type_=BigInteger)
        tokens = bindparam("more_tokens", type_=BigInteger)
        is_today = usage.c.day == day
        counted: dict[Any, Any] = {
            "day": day,
            "calls": case((is_today, usage.c.calls), else_=0) + calls,
            "tokens": case((is_today, usage.c.tokens), else_=0) + tokens,
        }
        row = database.insert(usage).values(user_id=bindparam("user"), day=day, calls=calls, tokens=tokens)
        has_room = usage.c.calls < bindparam("most_calls", type_=BigInteger)
        self.clock = select(database.now())
        self.read = select(usage).where(usage.c.user_id == bindparam("user"))
        # In one statement: of two that come at one time the second sees what the first has counted.
        self.add = row.on_conflict_do_update(index_elements=["user_id"], set_=counted)
        self.add_within = row.on_conflict_do_update(
            index_elements=["user_id"], set_=counted, where=or_(~is_today, has_room)
        )

    def read_clock(self, connection: Connection) -> float:
        """Return the seconds since the epoch, by the database's clock."""
        now: float = connection.execute(self.clock).scalar_one()
        return now


class SqlUsage(Usage):
    """See `callboard.storage.Usage`."""

    def __init__(self, database: Database, statements: UsageStatements, user_id: str) -> None:
        self._database = database
        self._statements = statements
        self._user_id = user_id

    async def today(self) -> DayUsage:
        """Return what was used today, and when the day ends."""

        def read(connection: Connection) -> DayUsage:
            now = self._statements.read_clock(connection)
            row = connection.execute(self._statements.read, {"user": self._user_id}).one_or_none()
            ends_in_seconds = SECONDS_A_DAY - now % SECONDS_A_DAY
            if row is None or row.day != now // SECONDS_A_DAY:
                return DayUsage(0, 0, ends_in_seconds)
            return DayUsage(row.calls, row.tokens, ends_in_seconds)

        return await self._database.read(read)

    async def take_call(self, limit: int) -> bool:
        """Count one call more, unless there have been as many as `limit` today; return whether it was counted."""
        return await self._add(self._statements.add_within, more_calls=1, most_calls=limit)

    async def add_tokens(self, tokens: int) -> None:
        """Count tokens."""
        await self._add(self._statements.add, more_tokens=tokens)

    async def _add(self, statement: Executable, **values: int) -> bool:
        def add(connection: Connection) -> bool:
            day = int(self._statements.read_clock(connection) // SECONDS_A_DAY)
            all_values = {"user": self._user_id, "today": day, "more_calls": 0, "more_tokens": 0, **values}
            return connection.execute(statement, all_values).rowcount > 0

        return await self._database.write(add)


async def drop_usage(database: Database, statements: UsageStatements) -> int:
    """Forget what was used on days that are over; return of how many users."""

    def drop(connection: Connection) -> int:
        day = statements.read_clock(connection) // SECONDS_A_DAY
        return connection.execute(delete(usage).where(usage.c.day < day)).rowcount

    return await database.write(drop)
