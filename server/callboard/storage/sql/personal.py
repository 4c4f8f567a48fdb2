"""The data of one user besides chats: memories, profile, agents' notes about themselves, values of skills."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Exists, Row, Subquery, case, delete, func, insert, literal, select, update

from callboard.storage.rows import FRESH_SECONDS_PER_USE, MAX_USES, write_value
from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import (
    MEMORY_WORDS,
    memories,
    memory_vectors,
    profile_attributes,
    records,
    self_notes,
)
from callboard.storage.values import (
    Attribute,
    AttributeKind,
    AttributeValue,
    Embed,
    Memory,
    MemoryMatches,
    NoteKind,
    Record,
    SelfNote,
)
from callboard.storage.vectors import compare_vectors, pack_vector
from callboard.storage.words import parse_query

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
        hits = self._database.dialect.hits(MEMORY_WORDS, wanted)
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
                self._database.dialect.index(connection, MEMORY_WORDS, row.id, text)
                return _read_memory(row), True
            return _read_memory(connection.execute(same.order_by(memories.c.id).limit(1)).one()), False

        return await self._database.write(add)

    async def change(self, memory_id: int, text: str) -> bool:
        """Replace the text of a memory; False if this user has no such memory."""
        wanted = update(memories).where(self._mine, memories.c.id == memory_id)

        def change(connection: Connection) -> bool:
            changed = connection.execute(wanted.values(text=text, updated_at=time.time()))
            if changed.rowcount:
                self._database.dialect.reindex(connection, MEMORY_WORDS, memory_id, text)
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
        [wanted] = await embed([query])
        pack_vector(wanted)
        not_compared = await self._embed_missing(embed, model)
        compared = {memory.id: (memory, vector) for memory, vector in await self._with_vectors(model)}
        vectors = [(number, vector) for number, (_, vector) in compared.items()]
        # In a thread: thousands of vectors take long enough to delay other requests.
        near = await asyncio.to_thread(compare_vectors, wanted, vectors)
        by_meaning = sorted(near, key=lambda number: -near[number])
        by_words = await self.search(query, limit)
        found = {number: compared[number][0] for number in by_meaning[:limit]}
        found |= {memory.id: memory for memory in by_words}
        score = dict.fromkeys(found, 0.0)
        for ranked in (by_meaning, [memory.id for memory in by_words]):
            for rank, number in enumerate(ranked):
                if number in score:
                    score[number] += 1 / (RANK_OFFSET + rank)
        best = sorted(found.values(), key=lambda memory: -score[memory.id])[:limit]
        similarity = {memory.id: near[memory.id] for memory in best if memory.id in near}
        return MemoryMatches(tuple(best), similarity, not_compared)

    async def _embed_missing(self, embed: Embed, model: str) -> int:
        """Embed memories that have no vector; return the number that remains without one."""
        missing = await self._without_vector(model)
        for start in range(0, min(len(missing), MAX_EMBEDDED), EMBEDDED_AT_ONCE):
            batch = missing[start : start + EMBEDDED_AT_ONCE]
            vectors = await embed([memory.text for memory in batch])
            packed = [(memory, pack_vector(one)) for memory, one in zip(batch, vectors, strict=True)]
            await self._store_vectors(packed, model)
        return max(0, len(missing) - MAX_EMBEDDED)

    async def _without_vector(self, model: str) -> list[Memory]:
        """Return the memories without a vector of a model, at most `MAX_COMPARED`, last changed first."""
        has = _has_vector(memories.c.id, model)
        without = select(memories).where(self._mine, ~has).order_by(memories.c.updated_at.desc())
        return [_read_memory(row) for row in await self._database.fetch(without.limit(MAX_COMPARED))]

    async def _store_vectors(self, embedded: Sequence[tuple[Memory, bytes]], model: str) -> None:
        """Store the vectors, except of memories that were changed or deleted in the meantime."""

        def store(connection: Connection) -> None:
            for memory, vector in embedded:
                # A concurrent search may have stored the vector already.
                same = select(memories.c.id, literal(model), literal(vector)).where(
                    memories.c.id == memory.id, memories.c.text == memory.text, ~_has_vector(memory.id, model)
                )
                columns = ["memory_id", "model", "vector"]
                connection.execute(insert(memory_vectors).from_select(columns, same))

        await self._database.write(store)

    async def _with_vectors(self, model: str) -> list[tuple[Memory, bytes]]:
        """Return those of the `MAX_COMPARED` last changed memories that have a vector of a model, with the vector."""
        mine = select(memories).where(self._mine).order_by(memories.c.updated_at.desc()).limit(MAX_COMPARED).subquery()
        compared = select(mine, memory_vectors.c.vector).join(
            memory_vectors, (memory_vectors.c.memory_id == mine.c.id) & (memory_vectors.c.model == model)
        )
        return [(_read_memory(row), row.vector) for row in await self._database.fetch(compared)]


def _has_vector(memory_id: Column[int] | int, model: str) -> Exists:
    return (
        select(memory_vectors).where(memory_vectors.c.memory_id == memory_id, memory_vectors.c.model == model).exists()
    )


def _read_memory(row: Row[*tuple[Any, ...]]) -> Memory:
    return Memory(row.id, row.text, row.created_at, row.updated_at)


class Profile:
    """The profile of one user: typed values by name."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id

    async def attributes(self) -> Mapping[str, Attribute]:
        """Return all attributes by name, sorted by name."""
        rows = profile_attributes.c
        query = select(profile_attributes).where(rows.user_id == self._user_id).order_by(rows.name)
        found = await self._database.fetch(query)
        return {row.name: Attribute(row.kind, json.loads(row.value), row.updated_at) for row in found}

    async def put(self, name: str, kind: AttributeKind, value: AttributeValue) -> None:
        """Set or replace an attribute."""
        key = {"user_id": self._user_id, "name": name}
        values = {"kind": kind, "value": json.dumps(value, ensure_ascii=False), "updated_at": time.time()}
        await self._database.put(profile_attributes, key, values)

    async def remove(self, name: str) -> bool:
        """Delete an attribute; False if there is none of that name."""
        rows = profile_attributes.c
        forget = delete(profile_attributes).where(rows.user_id == self._user_id, rows.name == name)
        return bool(await self._database.execute(forget))


class SelfNotes:
    """The notes and self-descriptions that one agent writes for one user.

    Entries are only appended, each kind with its own versions from 1. The newest description is the valid one.
    """

    def __init__(self, database: Database, agent_id: str, user_id: str) -> None:
        self._database = database
        self._owner = {"agent_id": agent_id, "user_id": user_id}

    async def newest(self, kind: NoteKind, limit: int) -> list[SelfNote]:
        """Return the last entries of a kind, newest first."""
        numbered = self._number(kind)
        query = select(numbered).order_by(numbered.c.version.desc()).limit(limit)
        return [SelfNote(row.version, row.text, row.created_at) for row in await self._database.fetch(query)]

    async def description(self, version: int) -> SelfNote | None:
        """Return a version of the description, None if it does not exist."""
        numbered = self._number("description")
        found = await self._database.fetch(select(numbered).where(numbered.c.version == version))
        return next((SelfNote(row.version, row.text, row.created_at) for row in found), None)

    async def add(self, kind: NoteKind, text: str) -> int:
        """Append an entry; return its version."""
        values = {**self._owner, "kind": kind, "text": text, "created_at": time.time()}
        numbered = self._number(kind)

        def add(connection: Connection) -> int:
            # One writer at a time, so that two concurrent writers do not return the same version.
            self._database.dialect.serialize_writes(connection, "/".join([*self._owner.values(), kind]))
            connection.execute(insert(self_notes).values(values))
            return int(connection.scalar(select(func.max(numbered.c.version))) or 0)

        return await self._database.write(add)

    def _number(self, kind: NoteKind) -> Subquery:
        version = func.row_number().over(order_by=self_notes.c.id).label("version")
        return (
            select(version, self_notes.c.text, self_notes.c.created_at).filter_by(**self._owner, kind=kind).subquery()
        )


class Records:
    """A key-value store of JSON values for one skill and one user; others cannot read it.

    Keys have at most 255 characters, values at most 1 MiB as JSON. Methods raise `ValueError` for larger ones and for
    values that JSON cannot represent.
    """

    def __init__(self, database: Database, namespace: str, user_id: str) -> None:
        self._database = database
        self._owner = {"namespace": namespace, "user_id": user_id}
        self._mine = (records.c.namespace == namespace) & (records.c.user_id == user_id)

    async def get(self, key: str) -> Record | None:
        """Return the record of a key, None if there is none."""
        found = await self._database.fetch(select(records).where(self._mine, records.c.key == key))
        return next(map(_read_record, found), None)

    async def put(self, key: str, value: Any) -> None:
        """Store a value under a key, replacing an earlier value."""
        values = {"value": write_value(key, value), "updated_at": time.time()}
        await self._database.put(records, {**self._owner, "key": key}, values)

    async def put_new(self, key: str, value: Any) -> bool:
        """Store a value if the key has none; False if the key has a value, which is not changed."""
        values = {"value": write_value(key, value), "updated_at": time.time()}
        row = self._database.dialect.insert(records).values(**self._owner, key=key, **values)
        return bool(await self._database.execute(row.on_conflict_do_nothing()))

    async def remove(self, key: str) -> bool:
        """Delete the record of a key; False if there is none."""
        return bool(await self._database.execute(delete(records).where(self._mine, records.c.key == key)))

    async def find(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Record]:
        """Return the records whose keys begin with `prefix` and sort after `after`, sorted by key.

        Keys are compared by code points.
        """
        ordered = self._database.dialect.by_code_point(records.c.key)
        # Not LIKE, which ignores case on SQLite.
        begins = func.substr(records.c.key, 1, len(prefix)) == prefix
        query = select(records).where(self._mine, begins, ordered > after)
        return [_read_record(row) for row in await self._database.fetch(query.order_by(ordered).limit(limit))]


def _read_record(row: Row[*tuple[Any, ...]]) -> Record:
    return Record(row.key, json.loads(row.value), row.updated_at)
