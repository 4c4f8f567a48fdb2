"""What a user has used up of the day, counted in one row: servers that share the database count together."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Executable, bindparam, case, delete, or_, select, true

from callboard.storage.sql.database import Database
from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.tables import usage
from callboard.storage.values import SECONDS_A_DAY, DayUsage


class UsageStatements:
    """What is asked of a database, made once: what SQLAlchemy works out of a statement, it keeps with it."""

    def __init__(self, dialect: Dialect) -> None:
        self.clock = select(dialect.now())
        self.row = select(usage).where(usage.c.user_id == bindparam("user"))
        self.take_call = self._add(dialect, usage.c.calls < bindparam("limit", type_=BigInteger))
        self.add_tokens = self._add(dialect, true())

    def _add(self, dialect: Dialect, has_room: ColumnElement[bool]) -> Executable:
        given: dict[str, Any] = {name: bindparam(name) for name in ("user_id", "day", "calls", "tokens")}
        row = dialect.insert(usage).values(**given)
        is_today = usage.c.day == row.excluded.day
        counted = {
            "day": row.excluded.day,
            "calls": case((is_today, usage.c.calls), else_=0) + row.excluded.calls,
            "tokens": case((is_today, usage.c.tokens), else_=0) + row.excluded.tokens,
        }
        # In one statement: of two that come at one time the second sees what the first has counted.
        put: Executable = row.on_conflict_do_update(
            index_elements=["user_id"], set_=counted, where=or_(~is_today, has_room)
        )
        return put


class Usage:
    """What a user has used of a day: a day of UTC, by the store's clock. Whoever shares the store counts together."""

    def __init__(self, database: Database, statements: UsageStatements, user_id: str) -> None:
        self._database = database
        self._statements = statements
        self._user_id = user_id

    async def today(self) -> DayUsage:
        """Return what was used today, and when the day ends."""

        def read(connection: Connection) -> DayUsage:
            now: float = connection.execute(self._statements.clock).scalar_one()
            row = connection.execute(self._statements.row, {"user": self._user_id}).one_or_none()
            ends_in_seconds = SECONDS_A_DAY - now % SECONDS_A_DAY
            if row is None or row.day != now // SECONDS_A_DAY:
                return DayUsage(0, 0, ends_in_seconds)
            return DayUsage(row.calls, row.tokens, ends_in_seconds)

        return await self._database.read(read)

    async def take_call(self, limit: int) -> bool:
        """Count one call more, unless there have been as many as `limit` today; return whether it was counted."""
        return await self._add(self._statements.take_call, calls=1, tokens=0, limit=limit)

    async def add_tokens(self, tokens: int) -> None:
        """Count tokens."""
        await self._add(self._statements.add_tokens, calls=0, tokens=tokens)

    async def _add(self, statement: Executable, **given: int) -> bool:
        def add(connection: Connection) -> bool:
            now: float = connection.execute(self._statements.clock).scalar_one()
            row = {"user_id": self._user_id, "day": int(now // SECONDS_A_DAY), **given}
            return connection.execute(statement, row).rowcount > 0

        return await self._database.write(add)


async def drop_usage(database: Database) -> int:
    """Forget what was used on days that are over; return of how many users."""

    def drop(connection: Connection) -> int:
        day = connection.execute(select(database.dialect.now())).scalar_one() // SECONDS_A_DAY
        return connection.execute(delete(usage).where(usage.c.day < day)).rowcount

    return await database.write(drop)
