"""Searches and lists the past chats of a user for an agent."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, and_, select

from callboard._history.turns import message_text
from callboard.storage.sql.database import Database
from callboard.storage.sql.overview import EXCERPT_CHARS, summarise_chats
from callboard.storage.sql.tables import MESSAGE_WORDS, chats, messages
from callboard.storage.values import FoundMessage, PastChat
from callboard.storage.words import Term, excerpt, parse_query

ROWS_PER_HIT = 4
"""The rows that a search reads for each message to return, because edits and regenerations store a message again."""


class PastChats:
    """The chats of one user for an agent's search, without the current chat."""

    def __init__(self, database: Database, user_id: str, current_chat_id: str | None) -> None:
        self._database = database
        self._mine = chats.c.user_id == user_id
        if current_chat_id is not None:
            self._mine = and_(self._mine, chats.c.id != current_chat_id)

    async def search(self, query: str, limit: int) -> list[FoundMessage]:
        """Return the messages with any word of the query, best first; calls and results are not searched."""
        wanted = parse_query(query)
        if not wanted:
            return []
        hits = self._database.find_words(MESSAGE_WORDS, wanted)
        found = (
            select(messages.c.chat_id, messages.c.role, messages.c.content, messages.c.created_at)
            .join(hits, hits.c.rowid == messages.c.id)
            .join(chats, chats.c.id == messages.c.chat_id)
            .where(self._mine)
            .order_by(hits.c.rank, messages.c.id.desc())
            .limit(limit * ROWS_PER_HIT)
        )
        return _show_messages(await self._database.fetch(found), wanted, limit)

    async def recent(self, limit: int) -> list[PastChat]:
        """Return the last updated chats, newest first."""
        query = select(chats).where(self._mine).order_by(chats.c.updated_at.desc(), chats.c.id).limit(limit)

        def read(connection: Connection) -> list[PastChat]:
            found = summarise_chats(connection, connection.execute(query).all())
            return [PastChat(one.chat_id, one.began_with, one.turns, one.started_at, one.last_at) for one in found]

        return await self._database.read(read)


def _show_messages(rows: Iterable[Any], wanted: Sequence[Term], limit: int) -> list[FoundMessage]:
    """Return the found messages in order, without duplicates, which come from edited and regenerated messages."""
    once: dict[tuple[str, str, str], FoundMessage] = {}
    for row in rows:
        shown = excerpt(message_text(row.content), wanted, EXCERPT_CHARS)
        once.setdefault((row.chat_id, row.role, shown), FoundMessage(row.chat_id, row.role, shown, row.created_at))
    return list(once.values())[:limit]
