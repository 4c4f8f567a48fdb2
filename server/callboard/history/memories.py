"""What agents were asked to remember of a user: short texts, found by their words or by what they mean."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, case, delete, insert, literal, select, update

from callboard.history.store import Store
from callboard.history.tables import memories, memory_vectors
from callboard.history.vectors import Vector, packed, similarities
from callboard.history.word_index import MEMORY_WORDS
from callboard.history.words import terms

MAX_COMPARED = 2_000
"""Memories of a user that a search compares by meaning, those that were changed last."""
MAX_EMBEDDED = 320
"""Of those, how many one search may have embedded; the others are found by their words until the next."""
BATCH = 32
"""Texts that the endpoint is sent at one time."""

FRESH_SECONDS_PER_USE = 7 * 86_400
MAX_USES = 12
"""Each time that a memory was found makes it a week younger, three months at most, where the first places are few."""

FUSION = 60
"""How little the first places count for where two rankings are made one (reciprocal rank fusion)."""

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Vector]]]
"""The vectors of texts, in their order."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One of them; times are seconds since the epoch."""

    id: int
    text: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class Meant:
    """What a search by meaning found, best first. `similarity`, by id, is from −1 to 1; `not_compared` counts the
    memories that were searched by their words alone."""

    memories: tuple[Memory, ...]
    similarity: dict[int, float]
    not_compared: int = 0


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

    async def foremost(self, limit: int) -> list[Memory]:
        """The newest and most used: each use makes a memory a week younger."""
        uses = case((memories.c.uses > MAX_USES, MAX_USES), else_=memories.c.uses)
        rank = memories.c.updated_at + uses * FRESH_SECONDS_PER_USE
        query = select(memories).where(self._mine).order_by(rank.desc(), memories.c.id.desc())
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

    async def search_by_meaning(self, query: str, limit: int, embed: Embed, model: str) -> Meant:
        """Those nearest to the query in meaning and in words, best first.

        `embed` is called for the query and for memories that have no vector of `model` yet, and
        what it raises is raised. `ValueError` where what it gives is no vector.
        """
        [wanted] = await embed([query])
        packed(wanted)
        missing = await self._embed_missing(embed, model)
        mine = select(memories).where(self._mine).order_by(memories.c.updated_at.desc()).limit(MAX_COMPARED).subquery()
        compared = select(mine, memory_vectors.c.vector).join(
            memory_vectors, (memory_vectors.c.memory_id == mine.c.id) & (memory_vectors.c.model == model)
        )
        async with self._store.reading() as connection:
            rows = (await connection.execute(compared)).all()
        # Not in the loop: thousands of vectors take as long as an answer does.
        near = await asyncio.to_thread(similarities, wanted, [(row.id, row.vector) for row in rows])
        by_meaning = sorted((row for row in rows if row.id in near), key=lambda row: -near[row.id])
        by_words = await self.search(query, limit)
        found = {one.id: one for one in (*map(_memory, by_meaning[:limit]), *by_words)}
        score = dict.fromkeys(found, 0.0)
        for ranked in ([row.id for row in by_meaning], [one.id for one in by_words]):
            for place, number in enumerate(ranked):
                if number in score:
                    score[number] += 1 / (FUSION + place)
        best = sorted(found.values(), key=lambda one: -score[one.id])[:limit]
        return Meant(tuple(best), {one.id: near[one.id] for one in best if one.id in near}, missing)

    async def count_use(self, memory_ids: Sequence[int]) -> None:
        """Count these as found once more."""
        used = update(memories).where(self._mine, memories.c.id.in_(memory_ids)).values(uses=memories.c.uses + 1)
        async with self._store.writing() as connection:
            await connection.execute(used)

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
                await connection.execute(delete(memory_vectors).where(memory_vectors.c.memory_id == memory_id))
        return bool(changed.rowcount)

    async def remove(self, memory_id: int) -> bool:
        """Forget it; False where this user has no such memory."""
        async with self._store.writing() as connection:
            removed = await connection.execute(delete(memories).where(self._mine, memories.c.id == memory_id))
        return bool(removed.rowcount)

    async def _embed_missing(self, embed: Embed, model: str) -> int:
        """Give the memories that have no vector one; returns how many are left without."""
        has = select(memory_vectors.c.memory_id).where(
            memory_vectors.c.memory_id == memories.c.id, memory_vectors.c.model == model
        )
        without = select(memories).where(self._mine, ~has.exists()).order_by(memories.c.updated_at.desc())
        async with self._store.reading() as connection:
            rows = (await connection.execute(without.limit(MAX_COMPARED))).all()
        for start in range(0, min(len(rows), MAX_EMBEDDED), BATCH):
            batch = rows[start : start + BATCH]
            vectors = await embed([row.text for row in batch])
            await self._keep([(row.id, row.text, packed(one)) for row, one in zip(batch, vectors, strict=True)], model)
        return max(0, len(rows) - MAX_EMBEDDED)

    async def _keep(self, embedded: Sequence[tuple[int, str, bytes]], model: str) -> None:
        async with self._store.writing() as connection:
            for memory_id, text, vector in embedded:
                known = select(memory_vectors.c.memory_id).where(
                    memory_vectors.c.memory_id == memory_id, memory_vectors.c.model == model
                )
                # As it was embedded: it may have been changed or deleted meanwhile, or another search was faster.
                same = select(memories.c.id, literal(model), literal(vector)).where(
                    memories.c.id == memory_id, memories.c.text == text, ~known.exists()
                )
                columns = ["memory_id", "model", "vector"]
                await connection.execute(insert(memory_vectors).from_select(columns, same))


def _memory(row: Row[*tuple[Any, ...]]) -> Memory:
    return Memory(row.id, row.text, row.created_at, row.updated_at)
