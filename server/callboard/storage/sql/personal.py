"""The data of one user besides chats and memories: profile, agents' notes about themselves, values of skills."""

import json
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, Subquery, delete, func, insert, select

from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import profile_attributes, records, self_notes
from callboard.storage.values import Attribute, AttributeKind, AttributeValue, NoteKind, Record, SelfNote
from callboard.text import storable

MAX_NAMESPACE_CHARS = 64
MAX_KEY_CHARS = 255
MAX_VALUE_BYTES = 1024 * 1024


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
            self._database.serialize_writes(connection, "/".join([*self._owner.values(), kind]))
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

    Namespaces have at most 64 characters, keys at most 255, values at most 1 MiB as JSON. Larger ones, and values that
    JSON cannot represent, raise `ValueError`.
    """

    def __init__(self, database: Database, namespace: str, user_id: str) -> None:
        _check_name("a namespace", namespace, MAX_NAMESPACE_CHARS)
        self._database = database
        self._owner = {"namespace": namespace, "user_id": user_id}
        self._mine = (records.c.namespace == namespace) & (records.c.user_id == user_id)

    async def get(self, key: str) -> Record | None:
        """Return the record of a key, None if there is none."""
        found = await self._database.fetch(select(records).where(self._mine, records.c.key == key))
        return next(map(_read_record, found), None)

    async def put(self, key: str, value: Any) -> None:
        """Store a value under a key, replacing an earlier value."""
        values = {"value": _write_value(key, value), "updated_at": time.time()}
        await self._database.put(records, {**self._owner, "key": key}, values)

    async def put_new(self, key: str, value: Any) -> bool:
        """Store a value if the key has none; False if the key has a value, which is not changed."""
        values = {"value": _write_value(key, value), "updated_at": time.time()}
        row = self._database.insert(records).values(**self._owner, key=key, **values)
        return bool(await self._database.execute(row.on_conflict_do_nothing()))

    async def remove(self, key: str) -> bool:
        """Delete the record of a key; False if there is none."""
        return bool(await self._database.execute(delete(records).where(self._mine, records.c.key == key)))

    async def find(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[Record]:
        """Return the records whose keys begin with `prefix` and sort after `after`, sorted by key.

        Keys are compared by code points.
        """
        ordered = self._database.by_code_point(records.c.key)
        # Not LIKE, which ignores case on SQLite.
        begins = func.substr(records.c.key, 1, len(prefix)) == prefix
        query = select(records).where(self._mine, begins, ordered > after)
        return [_read_record(row) for row in await self._database.fetch(query.order_by(ordered).limit(limit))]


def _check_name(what: str, name: str, max_chars: int) -> None:
    """Raise `ValueError` if a name is empty, too long, or has characters that a database cannot store."""
    if not 0 < len(name) <= max_chars or storable(name) != name:
        raise ValueError(f"{what} has 1 to {max_chars} characters, without NUL and lone surrogates")


def _write_value(key: str, value: object) -> str:
    """Return a value as JSON; raises `ValueError` if the value or its key cannot be stored."""
    _check_name("a key", key, MAX_KEY_CHARS)
    try:
        # ASCII with escapes: lone surrogates and NUL, which databases refuse, are restored when the value is read.
        written = json.dumps(value, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the value of {key!r} cannot be written as JSON: {error}") from None
    if len(written) > MAX_VALUE_BYTES:
        raise ValueError(f"the value of {key!r} has more than {MAX_VALUE_BYTES:,} bytes as JSON")
    return written


def _read_record(row: Row[*tuple[Any, ...]]) -> Record:
    return Record(row.key, json.loads(row.value), row.updated_at)
