"""What an agent writes about itself for one user: notes, and descriptions of which the newest holds.

Rows are only ever added: the version of each is its place among them.
"""

import time
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Subquery, func, insert, select

from callboard.history.store import Store
from callboard.history.tables import self_notes

Kind = Literal["note", "description"]


@dataclass(frozen=True, slots=True)
class SelfNote:
    """A note or a description; `version` counts each kind from 1, `created_at` is in seconds since the epoch."""

    version: int
    text: str
    created_at: float


class SelfNotes:
    """The writings of one agent for one user. Every method raises `StorageError`."""

    def __init__(self, store: Store, agent_id: str, user_id: str) -> None:
        self._store = store
        self._owner = {"agent_id": agent_id, "user_id": user_id}

    async def newest(self, kind: Kind, limit: int) -> list[SelfNote]:
        """The last ones, newest first."""
        numbered = self._numbered(kind)
        query = select(numbered).order_by(numbered.c.version.desc()).limit(limit)
        async with self._store.reading() as connection:
            return [SelfNote(row.version, row.text, row.created_at) for row in await connection.execute(query)]

    async def description(self, version: int) -> SelfNote | None:
        """The description of that version, None where there is none."""
        numbered = self._numbered("description")
        async with self._store.reading() as connection:
            row = (await connection.execute(select(numbered).where(numbered.c.version == version))).one_or_none()
        return SelfNote(row.version, row.text, row.created_at) if row else None

    async def add(self, kind: Kind, text: str) -> int:
        """Write one more; returns its version."""
        values = {**self._owner, "kind": kind, "text": text, "created_at": time.time()}
        numbered = self._numbered(kind)
        async with self._store.writing() as connection:
            if connection.dialect.name == "postgresql":
                # Writers one after another, or two could be told the same version.
                key = func.hashtext("/".join([*self._owner.values(), kind]))
                await connection.execute(select(func.pg_advisory_xact_lock(key)))
            await connection.execute(insert(self_notes).values(values))
            return int(await connection.scalar(select(func.max(numbered.c.version))) or 0)

    def _numbered(self, kind: Kind) -> Subquery:
        version = func.row_number().over(order_by=self_notes.c.id).label("version")
        return (
            select(version, self_notes.c.text, self_notes.c.created_at).filter_by(**self._owner, kind=kind).subquery()
        )
