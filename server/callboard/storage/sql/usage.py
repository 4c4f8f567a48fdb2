"""Counts each user's calls and tokens of the current day in one row, shared by all servers of the database."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Executable, bindparam, case, delete, or_, select, true

from callboard.storage.sql.database import Database
from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.tables import usage
from callboard.storage.values import SECONDS_A_DAY, DayUsage


class UsageStatements:
    """The statements, built once because SQLAlchemy caches the compiled form of a statement with its object."""

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
        # One statement, so that of two concurrent calls the second sees the count of the first.
        put: Executable = row.on_conflict_do_update(
            index_elements=["user_id"], set_=counted, where=or_(~is_today, has_room)
        )
        return put


class Usage:
    """A user's usage of the current day in UTC, by the database's clock."""

    def __init__(self, database: Database, statements: UsageStatements, user_id: str) -> None:
        self._database = database
        self._statements = statements
        self._user_id = user_id

    async def today(self) -> DayUsage:
        """Return today's usage and the time until the day ends."""

        def read(connection: Connection) -> DayUsage:
            now: float = connection.execute(self._statements.clock).scalar_one()
            row = connection.execute(self._statements.row, {"user": self._user_id}).one_or_none()
            ends_in_seconds = SECONDS_A_DAY - now % SECONDS_A_DAY
            if row is None or row.day != now // SECONDS_A_DAY:
                return DayUsage(0, 0, ends_in_seconds)
            return DayUsage(row.calls, row.tokens, ends_in_seconds)

        return await self._database.read(read)

    async def take_call(self, limit: int) -> bool:
        """Count one more call unless today's calls have reached `limit`; return whether the call was counted."""
        return await self._add(self._statements.take_call, calls=1, tokens=0, limit=limit)

    async def add_tokens(self, tokens: int) -> None:
        """Add tokens to today's usage."""
        await self._add(self._statements.add_tokens, calls=0, tokens=tokens)

    async def _add(self, statement: Executable, **given: int) -> bool:
        def add(connection: Connection) -> bool:
            now: float = connection.execute(self._statements.clock).scalar_one()
            row = {"user_id": self._user_id, "day": int(now // SECONDS_A_DAY), **given}
            return connection.execute(statement, row).rowcount > 0

        return await self._database.write(add)


async def drop_usage(database: Database) -> int:
    """Delete the usage of past days; return the number of deleted rows."""

    def drop(connection: Connection) -> int:
        day = connection.execute(select(database.dialect.now())).scalar_one() // SECONDS_A_DAY
        return connection.execute(delete(usage).where(usage.c.day < day)).rowcount

    return await database.write(drop)
