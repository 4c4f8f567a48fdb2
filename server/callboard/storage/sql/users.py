"""All that is kept of one user, whatever table it is in: to hand it out, and to forget it."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, Row, Select, Table, select, tuple_

from callboard.errors import UnknownChat
from callboard.storage.rows import write_audit_line
from callboard.storage.sql.audit import Audit
from callboard.storage.sql.chats import Chats, delete_chats
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import (
    chats,
    memories,
    profile_attributes,
    records,
    response_items,
    responses,
    self_notes,
    usage,
)
from callboard.storage.values import AuditFilter, Line

ROWS_AT_ONCE = 100
"""The rows that are read at one time."""


@dataclass(frozen=True, slots=True)
class _UserTable:
    """A table with rows of users, and how one is handed out.

    `kind` is what a line says it is; `hidden` are columns that say nothing to the user, `json` those that hold JSON.
    """

    kind: str
    table: Table
    hidden: Collection[str] = ()
    json: Collection[str] = field(default=())

    @property
    def key(self) -> Sequence[Column[Any]]:
        """The columns by which a row is known, and in whose order rows are read."""
        return list(self.table.primary_key.columns)

    def line(self, row: Row[*tuple[Any, ...]]) -> Line:
        """Return a row as it is handed out."""
        shown = {name: value for name, value in row._mapping.items() if name not in self.hidden}
        return {"kind": self.kind, **shown, **{name: json.loads(shown[name]) for name in self.json}}


USER_TABLES = (
    _UserTable("memory", memories, hidden={"user_id"}),
    _UserTable("attribute", profile_attributes, hidden={"user_id", "kind"}, json={"value"}),
    _UserTable("self_note", self_notes, hidden={"user_id", "kind"}),
    _UserTable("record", records, hidden={"user_id"}, json={"value"}),
    _UserTable("response_item", response_items, hidden={"user_id"}, json={"item"}),
)
"""The tables that name users, but for chats, and runs, which the log of runs forgets."""

USAGE_TABLE = _UserTable("usage", usage, hidden={"user_id"})
"""What is handed out, and stays until the day is over: else a user who is forgotten would have it given back."""

RESPONSE_TABLE = _UserTable("response", responses, json={"input"})


async def read_user(database: Database, user_id: str) -> AsyncIterator[list[Line]]:
    """Yield all that is kept of a user, piece by piece: chats with their messages first."""
    await database.catch_up()
    chat = _UserTable("chat", chats, hidden={"user_id", "id"})
    async for rows in _pages(database, chat, user_id):
        for row in rows:
            yield [{**chat.line(row), "chat_id": row.id}]
            # It may have been deleted meanwhile.
            with suppress(UnknownChat):
                async for messages in Chats(database, user_id).export_pages(row.id):
                    yield [{"kind": "message", "chat_id": row.id, **message} for message in messages]
            yield [RESPONSE_TABLE.line(one) for one in await database.fetch(_of_chat(row.id))]
    async for entries in Audit(database).read(AuditFilter(user_id=user_id)):
        yield [write_audit_line(entry) for entry in entries]
    for user_table in (*USER_TABLES, USAGE_TABLE):
        async for rows in _pages(database, user_table, user_id):
            yield [user_table.line(row) for row in rows]


def _of_chat(chat_id: str) -> Select[*tuple[Any, ...]]:
    return select(responses).where(responses.c.chat_id == chat_id).order_by(responses.c.created_at)


async def forget_user(database: Database, user_id: str) -> Mapping[str, int]:
    """Delete all that is kept of a user but runs; return how many rows of each kind there were."""
    # What waits to be written would bring it back.
    await database.late.store()
    forgotten = {"chat": await delete_chats(database, chats.c.user_id == user_id)}
    for user_table in USER_TABLES:
        rows = user_table.table
        forgotten[user_table.kind] = await database.delete_in_batches(rows, rows.c.user_id == user_id)
    return forgotten


async def _pages(
    database: Database, user_table: _UserTable, user_id: str
) -> AsyncIterator[Sequence[Row[*tuple[Any, ...]]]]:
    order = database.dialect.by_code_point
    key = tuple_(*(order(one) if one.type.python_type is str else one for one in user_table.key))
    page = select(user_table.table).where(user_table.table.c.user_id == user_id).order_by(*key).limit(ROWS_AT_ONCE)
    rows = await database.fetch(page)
    while rows:
        yield rows
        last = tuple(getattr(rows[-1], one.name) for one in user_table.key)
        rows = await database.fetch(page.where(key > tuple_(*last)))
