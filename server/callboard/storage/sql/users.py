"""Exports and deletes all data of one user, from all tables."""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Table, select

from callboard.errors import UnknownChat
from callboard.storage.sql.chats import Chats, delete_chats
from callboard.storage.sql.database import Database, Rows
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
from callboard.storage.values import TOKENS, Line


@dataclass(frozen=True, slots=True)
class _UserTable:
    """How the rows of a table are exported.

    `kind` is the value of the field `kind` in each line; `hidden` are the columns that are left out, `json` the columns
    that contain JSON.
    """

    kind: str
    table: Table
    hidden: Collection[str] = ()
    json: Collection[str] = ()

    def pages(self, database: Database, user_id: str) -> AsyncIterator[Rows]:
        """Yield the rows of a user page by page, in the order of the primary key."""
        of_user = select(self.table).where(self.table.c.user_id == user_id)
        return database.pages(of_user, list(self.table.primary_key.columns))

    def line(self, row: Row[*tuple[Any, ...]]) -> Line:
        """Return a row as a line of the export."""
        shown = {name: value for name, value in row._mapping.items() if name not in self.hidden}
        if shown.get("namespace") == TOKENS:
            shown["value"] = '"[secret]"'
        return {"kind": self.kind, **shown, **{name: json.loads(shown[name]) for name in self.json}}


USER_TABLES = (
    _UserTable("memory", memories, hidden={"user_id"}),
    _UserTable("attribute", profile_attributes, hidden={"user_id", "kind"}, json={"value"}),
    _UserTable("self_note", self_notes, hidden={"user_id", "kind"}),
    _UserTable("record", records, hidden={"user_id"}, json={"value"}),
    _UserTable("response_item", response_items, hidden={"user_id"}, json={"item"}),
)
"""The tables with a user id whose rows are deleted here; chats are deleted apart, runs by `StoredRuns.forget_user`."""

USAGE_TABLE = _UserTable("usage", usage, hidden={"user_id"})
"""Exported, but not deleted before the day ends: otherwise a user could reset the quota by deleting their data."""

RESPONSE_TABLE = _UserTable("response", responses, json={"input"})


async def read_user(database: Database, user_id: str) -> AsyncIterator[list[Line]]:
    """Yield the lines of a user's export page by page, beginning with chats and their messages."""
    chat = _UserTable("chat", chats, hidden={"user_id", "id"})
    async for rows in chat.pages(database, user_id):
        for row in rows:
            yield [{**chat.line(row), "chat_id": row.id}]
            # The chat may have been deleted meanwhile.
            with suppress(UnknownChat):
                async for messages in Chats(database, user_id).export_pages(row.id):
                    yield [{"kind": "message", "chat_id": row.id, **message} for message in messages]
            in_chat = select(responses).where(responses.c.chat_id == row.id).order_by(responses.c.created_at)
            yield [RESPONSE_TABLE.line(one) for one in await database.fetch(in_chat)]
    for user_table in (*USER_TABLES, USAGE_TABLE):
        async for rows in user_table.pages(database, user_id):
            yield [user_table.line(row) for row in rows]


async def forget_user(database: Database, user_id: str) -> Mapping[str, int]:
    """Delete the data of a user, except runs; return the number of deleted rows of each kind."""
    forgotten = {"chat": await delete_chats(database, chats.c.user_id == user_id)}
    for user_table in USER_TABLES:
        rows = user_table.table
        forgotten[user_table.kind] = await database.delete_in_batches(rows, rows.c.user_id == user_id)
    return forgotten
