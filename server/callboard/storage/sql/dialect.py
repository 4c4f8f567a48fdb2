"""The SQL of a database that is not every database's: its `INSERT`, its clock, its full text, its locks by a key.

Makes statements and parts of them, and opens nothing: `Database` is what runs them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Table, Text, bindparam, delete, insert

from callboard.storage.sql.tables import MEMORY_WORDS, MESSAGE_WORDS, WordIndex
from callboard.storage.words import Term, index_text


class Dialect(ABC):
    """What one kind of database has of its own in SQL."""

    def __init__(self) -> None:
        words = bindparam("text", type_=Text)
        self._indexing = {
            index: insert(index.table()).values(rowid=bindparam("row"), words=self._as_indexed(index, words))
            for index in (MEMORY_WORDS, MESSAGE_WORDS)
        }

    @abstractmethod
    def insert(self, into: Table) -> Any:
        """Return the database's own `INSERT`, which knows `ON CONFLICT`."""

    @abstractmethod
    def now(self) -> ColumnElement[float]:
        """Return the database's own clock: seconds since the epoch, at the beginning of a statement or later."""

    @abstractmethod
    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return a text as one that is compared code point by code point."""

    @abstractmethod
    def serialize_writes(self, connection: Connection, key: str) -> None:
        """Let those who write under the same key do so one after another, each until the end of its transaction."""

    @abstractmethod
    def hits(self, index: WordIndex, wanted: Sequence[Term]) -> Subquery:
        """Return the rows of an index with any of the terms: `rowid`, and `rank`, of which the lowest is the best."""

    @abstractmethod
    def _as_indexed(self, index: WordIndex, words: ColumnElement[str]) -> ColumnElement[Any]:
        """Return words as the index holds them."""

    def index(self, connection: Connection, index: WordIndex, row_id: int, text: str) -> None:
        """Make a new row found by its words."""
        if words := index_text(text):
            connection.execute(self._indexing[index], {"row": row_id, "text": words})

    def reindex(self, connection: Connection, index: WordIndex, row_id: int, text: str) -> None:
        """Make a row found by its new words, and no longer by the old ones."""
        rows = index.table()
        connection.execute(delete(rows).where(rows.c.rowid == row_id))
        self.index(connection, index, row_id, text)
