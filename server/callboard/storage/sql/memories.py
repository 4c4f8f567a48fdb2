"""The memories of a user: short texts, found by their words or, with embeddings, by their meaning."""

import asyncio
import math
import struct
import time
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any

from sqlalchemy import Connection, Row, case, delete, insert, literal, select, update

from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import MEMORY_WORDS, memories, memory_vectors
from callboard.storage.values import SECONDS_A_DAY, Embed, Memory, MemoryMatches, Vector
from callboard.storage.words import parse_query

FRESH_SECONDS_PER_USE = 7 * SECONDS_A_DAY
MAX_USES = 12
"""The most uses that count in the ranking of memories: each makes a memory rank as if it were a week newer."""
MAX_COMPARED = 2_000
"""A search by meaning compares at most this many memories, the last changed ones."""
MAX_EMBEDDED = 320
"""A search embeds at most this many memories; the others are found only by their words until a later search."""
EMBEDDED_AT_ONCE = 32
"""The texts in one request to the embedding endpoint."""
RANK_OFFSET = 60
"""The constant k of reciprocal rank fusion: each ranking adds 1 / (k + rank) to the score of a memory."""


class Memories:
    """The memories of one user: short texts, found by their words or by their meaning."""

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
                connection.execute(delete(memory_vectors).where(memory_vectors.c.memory_id == memory_id))
            return bool(changed.rowcount)

        return await self._database.write(change)

    async def remove(self, memory_id: int) -> bool:
        """Delete a memory; False if this user has no such memory."""
        return bool(await self._database.execute(delete(memories).where(self._mine, memories.c.id == memory_id)))

    async def search_by_meaning(self, query: str, limit: int, embed: Embed, model: str) -> MemoryMatches:
        """Return the memories nearest to the query in meaning and in words, best first.

        Calls `embed` for the query and for memories without a vector of `model`, and raises the errors of `embed`.
        Raises `ValueError` if `embed` returns an invalid vector.
        """
        [vector_of_query] = await embed([query])
        wanted = _pack_vector(vector_of_query)
        compared = await self._load_vectors(model)
        missing = [memory for memory, vector in compared if vector is None]
        added = await self._embed(missing[:MAX_EMBEDDED], embed, model)
        vectors = [(memory.id, vector or added.get(memory.id)) for memory, vector in compared]
        # In a thread: thousands of vectors take long enough to delay other requests.
        near = await asyncio.to_thread(_compare_vectors, wanted, [(key, vector) for key, vector in vectors if vector])
        by_meaning = sorted(near, key=lambda number: -near[number])
        by_words = await self.search(query, limit)
        nearest = set(by_meaning[:limit])
        found = {memory.id: memory for memory, _ in compared if memory.id in nearest}
        found |= {memory.id: memory for memory in by_words}
        score = dict.fromkeys(found, 0.0)
        for ranked in (by_meaning, [memory.id for memory in by_words]):
            for rank, number in enumerate(ranked):
                if number in score:
                    score[number] += 1 / (RANK_OFFSET + rank)
        best = sorted(found.values(), key=lambda memory: -score[memory.id])[:limit]
        similarity = {memory.id: near[memory.id] for memory in best if memory.id in near}
        return MemoryMatches(tuple(best), similarity, max(0, len(missing) - MAX_EMBEDDED))

    async def _load_vectors(self, model: str) -> list[tuple[Memory, bytes | None]]:
        """Return the `MAX_COMPARED` last changed memories, each with its vector of a model, None without one."""
        of_model = (memory_vectors.c.memory_id == memories.c.id) & (memory_vectors.c.model == model)
        query = select(memories, memory_vectors.c.vector).outerjoin(memory_vectors, of_model).where(self._mine)
        rows = await self._database.fetch(query.order_by(memories.c.updated_at.desc()).limit(MAX_COMPARED))
        return [(_read_memory(row), row.vector) for row in rows]

    async def _embed(self, missing: Sequence[Memory], embed: Embed, model: str) -> dict[int, bytes]:
        """Embed memories and store their vectors; return the vectors by memory id."""
        added: dict[int, bytes] = {}
        for start in range(0, len(missing), EMBEDDED_AT_ONCE):
            batch = missing[start : start + EMBEDDED_AT_ONCE]
            vectors = await embed([memory.text for memory in batch])
            packed = [(memory, _pack_vector(one)) for memory, one in zip(batch, vectors, strict=True)]
            await self._store_vectors(packed, model)
            added |= {memory.id: vector for memory, vector in packed}
        return added

    async def _store_vectors(self, embedded: Sequence[tuple[Memory, bytes]], model: str) -> None:
        """Store the vectors, except of memories that were changed or deleted in the meantime."""

        def store(connection: Connection) -> None:
            for memory, vector in embedded:
                unchanged = select(memories.c.id, literal(model), literal(vector)).where(
                    memories.c.id == memory.id, memories.c.text == memory.text
                )
                row = self._database.insert(memory_vectors)
                # A concurrent search may have stored the vector already.
                connection.execute(row.from_select(memory_vectors.c.keys(), unchanged).on_conflict_do_nothing())

        await self._database.write(store)


def _read_memory(row: Row[*tuple[Any, ...]]) -> Memory:
    return Memory(row.id, row.text, row.created_at, row.updated_at)


def _pack_vector(vector: Vector) -> bytes:
    """Return the vector, normalised to length 1, as little-endian 32-bit floats.

    Raises `ValueError` if it is empty, zero or not finite.
    """
    length = math.sqrt(sum(map(mul, vector, vector)))
    if not vector or not math.isfinite(length) or length == 0:
        raise ValueError("a vector needs finite numbers, at least one of them not zero")
    return struct.pack(f"<{len(vector)}f", *(value / length for value in vector))


def _compare_vectors(wanted: bytes, packed: Iterable[tuple[int, bytes]]) -> dict[int, float]:
    """Return the cosine similarity of a packed vector and each of the others, by their ids.

    Vectors of another dimension are left out: an endpoint may have changed the model behind a name.
    """
    form = struct.Struct(f"<{len(wanted) // 4}f")
    values = form.unpack(wanted)
    return {key: sum(map(mul, values, form.unpack(data))) for key, data in packed if len(data) == len(wanted)}
