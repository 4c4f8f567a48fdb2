"""The audit log; triggers of the database refuse changes of its entries (see the first migration)."""

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import Connection, Double, Row, and_, bindparam, case, func, insert, literal, select

from callboard.storage.sql.database import Database
from callboard.storage.sql.queries import match_fields
from callboard.storage.sql.tables import audit, audit_arguments, now
from callboard.storage.values import SECONDS_A_DAY, AuditEntry, AuditFilter

COLUMNS = ("kind", "user_id", "key", "agent_id", "chat_id", "run_id", "tool_call_id", "tool_name", "outcome")
MAX_TOOL_NAME_CHARS = 255
MAX_OUTCOME_CHARS = 64
MAX_KEY_CHARS = 64
GIVEN: dict[str, Any] = {name: bindparam(name) for name in COLUMNS}
# Null seconds make `keep_until` null.
KEEP_UNTIL = now() + bindparam("keep_seconds", type_=Double)
ADD_ENTRY = insert(audit).values(**GIVEN, at=now(), keep_until=KEEP_UNTIL).returning(audit.c.id)
ADD_ARGUMENTS = insert(audit_arguments)


class Audit:
    """The append-only audit log. Times are from the database's clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, connection: Connection, entry: AuditEntry, keep_days: float = 0) -> None:
        """Append an entry; the database refuses to delete it before `keep_days` have passed, with 0 for ever."""
        row: dict[str, object] = {name: getattr(entry, name) for name in COLUMNS}
        # Models choose tool names, and agents error codes; the protocol limits the length of the other values.
        row["tool_name"] = entry.tool_name and entry.tool_name[:MAX_TOOL_NAME_CHARS]
        # The inspector adds its own name to the name of a key.
        row["key"] = entry.key and entry.key[:MAX_KEY_CHARS]
        row["outcome"] = entry.outcome and entry.outcome[:MAX_OUTCOME_CHARS]
        row["keep_seconds"] = keep_days * SECONDS_A_DAY or None
        audit_id = connection.execute(ADD_ENTRY, row).scalar_one()
        if entry.arguments is not None:
            connection.execute(ADD_ARGUMENTS, {"audit_id": audit_id, "arguments": entry.arguments})

    async def write(self, entry: AuditEntry, keep_days: float = 0) -> None:
        """Append an entry in a transaction of its own."""
        await self._database.write(lambda connection: self.add(connection, entry, keep_days))

    async def read(self, wanted: AuditFilter) -> AsyncIterator[list[AuditEntry]]:
        """Yield the matching entries page by page, oldest first."""
        names = ("kind", "user_id", "agent_id", "chat_id", "run_id", "tool_name")
        entries = select(audit, audit_arguments.c.arguments).select_from(audit.outerjoin(audit_arguments))
        query = entries.where(*match_fields(audit, audit.c.at, wanted, names))
        async for rows in self._database.pages(query, [audit.c.id]):
            yield [_read_entry(row) for row in rows]

    async def forget_user(self, user_id: str, key: str | None = None) -> int:
        """Delete the arguments of a user's calls and append an entry about it; return how many there were."""
        theirs = audit.c.user_id == user_id
        # The new entry is kept as long as the last entry of the user.
        keep_until = select(
            literal("forgotten"),
            now(),
            literal(user_id),
            literal(key),
            case((func.count(audit.c.keep_until) == func.count(), func.max(audit.c.keep_until)), else_=None),
        ).where(theirs)
        add_entry = insert(audit).from_select(["kind", "at", "user_id", "key", "keep_until"], keep_until)
        is_theirs = audit_arguments.c.audit_id.in_(select(audit.c.id).where(theirs))

        def append(connection: Connection) -> bool:
            if not connection.scalar(select(func.count()).select_from(audit_arguments).where(is_theirs)):
                return False
            connection.execute(add_entry)
            return True

        if not await self._database.write(append):
            return 0
        return await self._database.delete_in_batches(audit_arguments, is_theirs)

    async def drop(self) -> int:
        """Delete the entries whose retention has ended; return how many."""
        is_over = and_(audit.c.keep_until.is_not(None), audit.c.keep_until <= now())
        return await self._database.delete_in_batches(audit, is_over)


def _read_entry(row: Row[*tuple[Any, ...]]) -> AuditEntry:
    return AuditEntry(**{name: getattr(row, name) for name in AuditEntry.__dataclass_fields__})
