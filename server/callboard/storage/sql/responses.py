"""Stores responses of OpenAI's Responses API.

A response is in two tables: `responses` has the input of its request and is deleted with its chat; `response_items` has
the output items, and exists also without a chat.
"""

import json
import time
from collections.abc import Collection, Sequence

from sqlalchemy import Connection, insert, select

from callboard.storage.sql.database import Database
from callboard.storage.sql.tables import chats, response_items, responses
from callboard.storage.values import Item, PastResponse
from callboard.text import storable

IDS_PER_QUERY = 500
"""A request may name more ids than a statement can have parameters."""


class Responses:
    """Responses, by run id, and their items, by item id; later requests of a user's OpenAI clients refer to them."""

    def __init__(self, database: Database, user_id: str | None) -> None:
        self._database = database
        self._user_id = user_id

    async def load(self, run_id: str) -> PastResponse | None:
        """Return the response of a run, None if this user has none."""
        mine = responses.c.run_id == run_id, chats.c.user_id == self._user_id

        def read(connection: Connection) -> PastResponse | None:
            chat_id: str | None = connection.scalar(select(responses.c.chat_id).join(chats).where(*mine))
            if chat_id is None:
                return None
            of_chat = select(responses).where(responses.c.chat_id == chat_id)
            return PastResponse(chat_id, {row.run_id: (row.previous, row.input) for row in connection.execute(of_chat)})

        return await self._database.read(read)

    async def keep(self, items: Sequence[Item], chat_id: str | None) -> None:
        """Store the items of a response by their `id`; they are deleted with the chat.

        The response itself may be one of them, with an id that begins with `RESPONSE_PREFIX`.
        """
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

        def keep(connection: Connection) -> None:
            connection.execute(insert(response_items), rows)

        await self._database.write(keep)

    async def find(self, ids: Collection[str]) -> dict[str, Item]:
        """Return the existing items of this user among `ids`, by id."""
        wanted = list(dict.fromkeys(ids))
        found = {}
        owned = response_items.c.user_id.is_not_distinct_from(self._user_id)
        for start in range(0, len(wanted), IDS_PER_QUERY):
            part = wanted[start : start + IDS_PER_QUERY]
            query = select(response_items.c.id, response_items.c.item).where(response_items.c.id.in_(part), owned)
            found.update({row.id: json.loads(row.item) for row in await self._database.fetch(query)})
        return found
