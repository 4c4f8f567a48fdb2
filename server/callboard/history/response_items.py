"""What answers over `/v1/responses` consisted of, item by item, for clients that send an id in place of an item."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select

from callboard.history.store import Store
from callboard.history.tables import response_items
from callboard.text import storable

MAX_IDS_PER_QUERY = 500
"""Databases limit the parameters of a statement; SQLite's older default is 999."""

Item = Mapping[str, Any]


class ResponseItems:
    """The items of one user's responses. A missing user is a user of its own. Every method raises `StorageError`."""

    def __init__(self, store: Store, user_id: str | None) -> None:
        self._store = store
        self._user_id = user_id

    async def keep(self, items: Sequence[Item], chat_id: str | None) -> None:
        """Write the items of one response, each with an `id` of its own; whoever deletes the chat deletes them."""
        if not items:
            return
        now = time.time()
        rows = [
            {
                "id": item["id"],
                "user_id": self._user_id,
                "chat_id": chat_id,
                "item": storable(json.dumps(item, ensure_ascii=False)),
                "created_at": now,
            }
            for item in items
        ]
        async with self._store.writing() as connection:
            await connection.execute(insert(response_items), rows)

    async def find(self, ids: Collection[str]) -> dict[str, Item]:
        """Return the items of these ids, by id; one that was never kept, or is another user's, is not among them."""
        wanted, found = list(dict.fromkeys(ids)), {}
        owned = response_items.c.user_id.is_not_distinct_from(self._user_id)
        async with self._store.reading() as connection:
            for start in range(0, len(wanted), MAX_IDS_PER_QUERY):
                part = wanted[start : start + MAX_IDS_PER_QUERY]
                query = select(response_items.c.id, response_items.c.item).where(response_items.c.id.in_(part), owned)
                found.update({row.id: json.loads(row.item) for row in await connection.execute(query)})
        return found


async def drop_response_items(store: Store, before: float) -> int:
    """Forget the items that were written before then (seconds since the epoch); returns how many."""
    async with store.writing() as connection:
        result = await connection.execute(delete(response_items).where(response_items.c.created_at < before))
        return result.rowcount
