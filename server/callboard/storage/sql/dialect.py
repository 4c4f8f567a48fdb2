"""The SQL that differs between databases: `INSERT ... ON CONFLICT`, the clock, full text, locks by a key.

Builds statements and expressions; `Database` runs them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Table, Text, bindparam, delete, insert

from callboard.storage.sql.tables import MEMORY_WORDS, MESSAGE_WORDS, WordIndex
from callboard.storage.words import Term, index_text


class Dialect(ABC):
    """The SQL of one kind of database."""

    def __init__(self) -> None:
        words = bindparam("text", type_=Text)
        self._indexing = {
            index: insert(index.table()).values(rowid=bindparam("row"), words=self._as_indexed(index, words))
            for index in (MEMORY_WORDS, MESSAGE_WORDS)
        }

    @abstractmethod
    def insert(self, into: Table) -> Any:
        """Return the database's `INSERT`, which supports `ON CONFLICT`."""

    @abstractmethod
    def now(self) -> ColumnElement[float]:
        """Return the time of the database's clock in seconds since the epoch, not before the start of the statement."""

    @abstractmethod
    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text with a collation that compares code points."""

    @abstractmethod
    def serialize_writes(self, connection: Connection, key: str) -> None:
        """Wait until no other transaction that called this with the same key is open."""

    @abstractmethod
    def hits(self, index: WordIndex, wanted: Sequence[Term]) -> Subquery:
        """Return the rows of an index that match any of the terms: `rowid`, and `rank`, where lower is better."""

    @abstractmethod
    def _as_indexed(self, index: WordIndex, words: ColumnElement[str]) -> ColumnElement[Any]:
        """Return the value that the index stores for these words."""

    def index(self, connection: Connection, index: WordIndex, row_id: int, text: str) -> None:
        """Add a new row to the index."""
        if words := index_text(text):
            connection.execute(self._indexing[index], {"row": row_id, "text": words})

    def reindex(self, connection: Connection, index: WordIndex, row_id: int, text: str) -> None:
        """Replace the words of a row in the index."""
        rows = index.table()
        connection.execute(delete(rows).where(rows.c.rowid == row_id))
        self.index(connection, index, row_id, text)
