"""What agents were asked to remember of a user: short texts, found by their words."""

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, literal, select, update

from callboard.history.store import Store
from callboard.history.tables import memories
from callboard.history.word_index import MEMORY_WORDS
from callboard.history.words import terms


@dataclass(frozen=True, slots=True)
class Memory:
    """One of them; times are seconds since the epoch."""

    id: int
    text: str
    created_at: float
    updated_at: float


class Memories:
    """The memories of one user; those of others do not exist here. Every method raises `StorageError`."""

    def __init__(self, store: Store, user_id: str) -> None:
        self._store = store
        self._mine = memories.c.user_id == user_id
        self._user_id = user_id

    async def newest(self, limit: int) -> list[Memory]:
        """What was stored or changed last."""
        query = select(memories).where(self._mine).order_by(memories.c.updated_at.desc(), memories.c.id.desc())
        async with self._store.reading() as connection:
            return [_memory(row) for row in await connection.execute(query.limit(limit))]

    async def search(self, query: str, limit: int) -> list[Memory]:
        """Those with any word of the query, best first; any text is a query, one without words finds nothing."""
        wanted = terms(query)
        if not wanted:
            return []
        async with self._store.reading() as connection:
            hits = MEMORY_WORDS.hits(wanted, connection.dialect.name)
            found = (
                select(memories)
                .join(hits, hits.c.rowid == memories.c.id)
                .where(self._mine)
                .order_by(hits.c.rank, memories.c.updated_at.desc(), memories.c.id.desc())
            )
            return [_memory(row) for row in await connection.execute(found.limit(limit))]

    async def add(self, text: str) -> tuple[Memory, bool]:
        """The memory of exactly this text, and whether it is new."""
        now = time.time()
        same = select(memories).where(self._mine, memories.c.text == text)
        values = select(literal(self._user_id), literal(text), literal(now), literal(now)).where(~same.exists())
        columns = ["user_id", "text", "created_at", "updated_at"]
        async with self._store.writing() as connection:
            added = insert(memories).from_select(columns, values).returning(*memories.c)
            if row := (await connection.execute(added)).one_or_none():
                await MEMORY_WORDS.add(connection, row.id, text)
                return _memory(row), True
            return _memory((await connection.execute(same.order_by(memories.c.id).limit(1))).one()), False

    async def change(self, memory_id: int, text: str) -> bool:
        """Give it another text; False where this user has no such memory."""
        wanted = update(memories).where(self._mine, memories.c.id == memory_id)
        async with self._store.writing() as connection:
            changed = await connection.execute(wanted.values(text=text, updated_at=time.time()))
            if changed.rowcount:
                await MEMORY_WORDS.change(connection, memory_id, text)
        return bool(changed.rowcount)

    async def remove(self, memory_id: int) -> bool:
        """Forget it; False where this user has no such memory."""
        async with self._store.writing() as connection:
            removed = await connection.execute(delete(memories).where(self._mine, memories.c.id == memory_id))
        return bool(removed.rowcount)


def _memory(row: Row[*tuple[Any, ...]]) -> Memory:
    return Memory(row.id, row.text, row.created_at, row.updated_at)
