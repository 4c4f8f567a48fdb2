"""The memories of a user: short texts, found by their words."""

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, case, delete, insert, literal, select, update

from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import MEMORY_WORDS, memories
from callboard.storage.values import SECONDS_A_DAY, Memory
from callboard.storage.words import parse_query

FRESH_SECONDS_PER_USE = 7 * SECONDS_A_DAY
MAX_USES = 12
"""The most uses that count in the ranking of memories: each makes a memory rank as if it were a week newer."""


class Memories:
    """The memories of one user: short texts, found by their words."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._mine = memories.c.user_id == user_id
        self._user_id = user_id

    async def newest(self, limit: int) -> list[Memory]:
        """Return the memories that were stored or changed last, newest first."""
        query = select(memories).where(self._mine).order_by(memories.c.updated_at.desc(), memories.c.id.desc())
        return [_read_memory(row) for row in await self._database.fetch(query.limit(limit))]

    async def foremost(self, limit: int) -> list[Memory]:
        """Return the newest and most used memories: each use ranks a memory as if it were a week newer."""
        uses = case((memories.c.uses > MAX_USES, MAX_USES), else_=memories.c.uses)
        rank = memories.c.updated_at + uses * FRESH_SECONDS_PER_USE
        query = select(memories).where(self._mine).order_by(rank.desc(), memories.c.id.desc())
        return [_read_memory(row) for row in await self._database.fetch(query.limit(limit))]

    async def search(self, query: str, limit: int) -> list[Memory]:
        """Return the memories with any word of the query, best first; nothing if the query has no words."""
        wanted = parse_query(query)
        if not wanted:
            return []
        hits = self._database.find_words(MEMORY_WORDS, wanted)
        found = (
            select(memories)
            .join(hits, hits.c.rowid == memories.c.id)
            .where(self._mine)
            .order_by(hits.c.rank, memories.c.updated_at.desc(), memories.c.id.desc())
        )
        return [_read_memory(row) for row in await self._database.fetch(found.limit(limit))]

    async def count_use(self, memory_ids: Sequence[int]) -> None:
        """Add one use to each of these memories."""
        count_use = update(memories).where(self._mine, memories.c.id.in_(memory_ids)).values(uses=memories.c.uses + 1)
        await self._database.execute(count_use)

    async def add(self, text: str) -> tuple[Memory, bool]:
        """Return the memory with exactly this text, and whether it was added now."""
        now = time.time()
        same = select(memories).where(self._mine, memories.c.text == text)
        values = select(literal(self._user_id), literal(text), literal(now), literal(now)).where(~same.exists())
        columns = ["user_id", "text", "created_at", "updated_at"]

        def add(connection: Connection) -> tuple[Memory, bool]:
            add_memory = insert(memories).from_select(columns, values).returning(*memories.c)
            if row := connection.execute(add_memory).one_or_none():
                self._database.index_words(connection, MEMORY_WORDS, row.id, text)
                return _read_memory(row), True
            return _read_memory(connection.execute(same.order_by(memories.c.id).limit(1)).one()), False

        return await self._database.write(add)

    async def change(self, memory_id: int, text: str) -> bool:
        """Replace the text of a memory; False if this user has no such memory."""
        wanted = update(memories).where(self._mine, memories.c.id == memory_id)

        def change(connection: Connection) -> bool:
            changed = connection.execute(wanted.values(text=text, updated_at=time.time()))
            if changed.rowcount:
                connection.execute(delete(MEMORY_WORDS).where(MEMORY_WORDS.c.rowid == memory_id))
                self._database.index_words(connection, MEMORY_WORDS, memory_id, text)
            return bool(changed.rowcount)

        return await self._database.write(change)

    async def remove(self, memory_id: int) -> bool:
        """Delete a memory; False if this user has no such memory."""
        return bool(await self._database.execute(delete(memories).where(self._mine, memories.c.id == memory_id)))


def _read_memory(row: Row[*tuple[Any, ...]]) -> Memory:
    return Memory(row.id, row.text, row.created_at, row.updated_at)
