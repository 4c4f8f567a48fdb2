"""What is known of a user as named values of a type."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from callboard.history.store import Store
from callboard.history.tables import profile_attributes

AttributeKind = Literal["text", "number", "boolean", "date", "list"]
AttributeValue = bool | int | float | str | list[str]
"""A date is its ISO 8601 text."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One value; `updated_at` in seconds since the epoch."""

    kind: AttributeKind
    value: AttributeValue
    updated_at: float


class Profile:
    """The attributes of one user, by name. Every method raises `StorageError`."""

    def __init__(self, store: Store, user_id: str) -> None:
        self._store = store
        self._user_id = user_id

    async def attributes(self) -> Mapping[str, Attribute]:
        """All of them, by name in alphabetical order."""
        rows = profile_attributes.c
        query = select(profile_attributes).where(rows.user_id == self._user_id).order_by(rows.name)
        async with self._store.reading() as connection:
            found = (await connection.execute(query)).all()
        return {row.name: Attribute(row.kind, json.loads(row.value), row.updated_at) for row in found}

    async def put(self, name: str, kind: AttributeKind, value: AttributeValue) -> None:
        """Set the attribute, whatever it was."""
        key = {"user_id": self._user_id, "name": name}
        values = {"kind": kind, "value": json.dumps(value, ensure_ascii=False), "updated_at": time.time()}
        async with self._store.writing() as connection:
            insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            statement = insert(profile_attributes).values(**key, **values)
            await connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_=values))

    async def remove(self, name: str) -> bool:
        """Forget the attribute; False where there is none of that name."""
        rows = profile_attributes.c
        mine = delete(profile_attributes).where(rows.user_id == self._user_id, rows.name == name)
        async with self._store.writing() as connection:
            removed = await connection.execute(mine)
        return bool(removed.rowcount)
