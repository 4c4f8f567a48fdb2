"""The SQL of SQLite: full text with FTS5, and no locks by key, because SQLite has one writer at a time."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Table, func, select
from sqlalchemy.dialects import sqlite

from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.tables import WordIndex
from callboard.storage.words import Term, to_fts5

UNIX_EPOCH_DAY = 2440587.5
SECONDS_A_DAY = 86_400.0
"""A float, because SQLAlchemy derives the type of the product from it."""


class SqliteDialect(Dialect):
    """See `callboard.storage.sql.dialect.Dialect`."""

    def insert(self, into: Table) -> Any:
        """Return SQLite's `INSERT`."""
        return sqlite.insert(into)

    def now(self) -> ColumnElement[float]:
        """Return the machine's clock, converted from the Julian day."""
        return (func.julianday("now") - UNIX_EPOCH_DAY) * SECONDS_A_DAY

    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text: SQLite compares code points by default."""
        return text

    def serialize_writes(self, connection: Connection, key: str) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def hits(self, index: WordIndex, wanted: Sequence[Term]) -> Subquery:
        """Return the rows that FTS5 matches; FTS5 tables have a hidden column `rank`."""
        rows = index.table()
        matches = rows.c.words.match(to_fts5(wanted, stems=index.stems))
        return select(rows.c.rowid, rows.c.rank).where(matches).subquery()

    def _as_indexed(self, _index: WordIndex, words: ColumnElement[str]) -> ColumnElement[Any]:
        return words
