"""What is kept of one user beside chats: memories, a profile, agents' notes on themselves, values of skills."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Exists, Row, Subquery, case, delete, func, insert, literal, select, update

from callboard.storage.meaning import MAX_COMPARED, VectorMemories
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
    Memory,
    NoteKind,
    Record,
    SelfNote,
)
from callboard.storage.words import parse_query


class Memories(VectorMemories):
    """The texts that agents were asked to remember of one user: short, found by their words or by what they mean."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._mine = memories.c.user_id == user_id
        self._user_id = user_id

    async def newest(self, limit: int) -> list[Memory]:
        """Return what was stored or changed last."""
        query = select(memories).where(self._mine).order_by(memories.c.updated_at.desc(), memories.c.id.desc())
        return [_read_memory(row) for row in await self._database.fetch(query.limit(limit))]

    async def foremost(self, limit: int) -> list[Memory]:
        """Return the newest and most used: each use makes a memory a week younger."""
        uses = case((memories.c.uses > MAX_USES, MAX_USES), else_=memories.c.uses)
        rank = memories.c.updated_at + uses * FRESH_SECONDS_PER_USE
        query = select(memories).where(self._mine).order_by(rank.desc(), memories.c.id.desc())
        return [_read_memory(row) for row in await self._database.fetch(query.limit(limit))]

    async def search(self, query: str, limit: int) -> list[Memory]:
        """Return those with any word of the query, best first; any text is a query, one without words finds nothing."""
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
        """Count these as found once more."""
        count_use = update(memories).where(self._mine, memories.c.id.in_(memory_ids)).values(uses=memories.c.uses + 1)
        await self._database.execute(count_use)

    async def add(self, text: str) -> tuple[Memory, bool]:
        """Return the memory of exactly this text, and whether it is new."""
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
        """Give it another text; False where this user has no such memory."""
        wanted = update(memories).where(self._mine, memories.c.id == memory_id)

        def change(connection: Connection) -> bool:
            changed = connection.execute(wanted.values(text=text, updated_at=time.time()))
            if changed.rowcount:
                self._database.dialect.reindex(connection, MEMORY_WORDS, memory_id, text)
                connection.execute(delete(memory_vectors).where(memory_vectors.c.memory_id == memory_id))
            return bool(changed.rowcount)

        return await self._database.write(change)

    async def remove(self, memory_id: int) -> bool:
        """Forget it; False where this user has no such memory."""
        return bool(await self._database.execute(delete(memories).where(self._mine, memories.c.id == memory_id)))

    async def without_vector(self, model: str) -> list[Memory]:
        """Return those that have no vector of a model, at most `MAX_COMPARED`, last changed first."""
        has = _has_vector(memories.c.id, model)
        without = select(memories).where(self._mine, ~has).order_by(memories.c.updated_at.desc())
        return [_read_memory(row) for row in await self._database.fetch(without.limit(MAX_COMPARED))]

    async def keep_vectors(self, embedded: Sequence[tuple[Memory, bytes]], model: str) -> None:
        """Keep their vectors, but for those that were changed or deleted meanwhile."""

        def keep(connection: Connection) -> None:
            for memory, vector in embedded:
                # Another search may have been faster.
                same = select(memories.c.id, literal(model), literal(vector)).where(
                    memories.c.id == memory.id, memories.c.text == memory.text, ~_has_vector(memory.id, model)
                )
                columns = ["memory_id", "model", "vector"]
                connection.execute(insert(memory_vectors).from_select(columns, same))

        await self._database.write(keep)

    async def with_vectors(self, model: str) -> list[tuple[Memory, bytes]]:
        """Return those that have a vector of a model, of the `MAX_COMPARED` that were changed last."""
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
    """The profile of one user: what is known of them, as named values of a type."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id

    async def attributes(self) -> Mapping[str, Attribute]:
        """Return all of them, by name in alphabetical order."""
        rows = profile_attributes.c
        query = select(profile_attributes).where(rows.user_id == self._user_id).order_by(rows.name)
        found = await self._database.fetch(query)
        return {row.name: Attribute(row.kind, json.loads(row.value), row.updated_at) for row in found}

    async def put(self, name: str, kind: AttributeKind, value: AttributeValue) -> None:
        """Set the attribute, whatever it was."""
        key = {"user_id": self._user_id, "name": name}
        values = {"kind": kind, "value": json.dumps(value, ensure_ascii=False), "updated_at": time.time()}
        await self._database.put(profile_attributes, key, values)

    async def remove(self, name: str) -> bool:
        """Forget the attribute; False where there is none of that name."""
        rows = profile_attributes.c
        forget = delete(profile_attributes).where(rows.user_id == self._user_id, rows.name == name)
        return bool(await self._database.execute(forget))


class SelfNotes:
    """The notes that one agent writes about itself for one user, and descriptions of which the newest holds.

    They are only ever added: the version of each is its place among them.
    """

    def __init__(self, database: Database, agent_id: str, user_id: str) -> None:
        self._database = database
        self._owner = {"agent_id": agent_id, "user_id": user_id}

    async def newest(self, kind: NoteKind, limit: int) -> list[SelfNote]:
        """Return the last ones, newest first."""
        numbered = self._number(kind)
        query = select(numbered).order_by(numbered.c.version.desc()).limit(limit)
        return [SelfNote(row.version, row.text, row.created_at) for row in await self._database.fetch(query)]

    async def description(self, version: int) -> SelfNote | None:
        """Return the description of that version, None where there is none."""
        numbered = self._number("description")
        found = await self._database.fetch(select(numbered).where(numbered.c.version == version))
        return next((SelfNote(row.version, row.text, row.created_at) for row in found), None)

    async def add(self, kind: NoteKind, text: str) -> int:
        """Write one more; returns its version."""
        values = {**self._owner, "kind": kind, "text": text, "created_at": time.time()}
        numbered = self._number(kind)

        def add(connection: Connection) -> int:
            # Writers one after another, or two could be told the same version.
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
    """The values that one skill keeps of one user, each under a key: any value that JSON can hold.

    No other skill and no other user sees it. Keys have at most 255 characters, values at most 1 MiB as JSON; what is
    larger, and what JSON cannot hold, is a `ValueError`.
    """

    def __init__(self, database: Database, namespace: str, user_id: str) -> None:
        self._database = database
        self._owner = {"namespace": namespace, "user_id": user_id}
        self._mine = (records.c.namespace == namespace) & (records.c.user_id == user_id)

    async def get(self, key: str) -> Record | None:
        """Return what is kept under a key, None where nothing is."""
        found = await self._database.fetch(select(records).where(self._mine, records.c.key == key))
        return next(map(_read_record, found), None)

    async def put(self, key: str, value: Any) -> None:
        """Keep a value under a key, whatever was there."""
        values = {"value": write_value(key, value), "updated_at": time.time()}
        await self._database.put(records, {**self._owner, "key": key}, values)

    async def put_new(self, key: str, value: Any) -> bool:
        """Keep a value under a key where nothing is; False where something is, which stays."""
        values = {"value": write_value(key, value), "updated_at": time.time()}
        row = self._database.dialect.insert(records).values(**self._owner, key=key, **values)
        return bool(await self._database.execute(row.on_conflict_do_nothing()))

    async def remove(self, key: str) -> bool:
        """Forget what is kept under a key; False where nothing is."""
        return bool(await self._database.execute(delete(records).where(self._mine, records.c.key == key)))

    async def find(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Record]:
        """Return what is kept under keys that begin with `prefix` and come after `after`, in the order of the keys.

        That order is the one of their code points.
        """
        ordered = self._database.dialect.by_code_point(records.c.key)
        # Not LIKE, to which on SQLite a and A are the same.
        begins = func.substr(records.c.key, 1, len(prefix)) == prefix
        query = select(records).where(self._mine, begins, ordered > after)
        return [_read_record(row) for row in await self._database.fetch(query.order_by(ordered).limit(limit))]


def _read_record(row: Row[*tuple[Any, ...]]) -> Record:
    return Record(row.key, json.loads(row.value), row.updated_at)
