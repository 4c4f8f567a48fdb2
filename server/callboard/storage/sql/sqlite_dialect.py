"""SQLite's own SQL: full text as FTS5, and nothing for locks, because it has one writer at a time."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, Table, func, select
from sqlalchemy.dialects import sqlite

from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.tables import WordIndex
from callboard.storage.words import Term, to_fts5

UNIX_EPOCH_DAY = 2440587.5
SECONDS_A_DAY = 86_400.0
"""A float: by an integer SQLAlchemy would take the time for one."""


class SqliteDialect(Dialect):
    """See `callboard.storage.sql.dialect.Dialect`."""

    def insert(self, into: Table) -> Any:
        """Return SQLite's `INSERT`."""
        return sqlite.insert(into)

    def now(self) -> ColumnElement[float]:
        """Return the clock of the machine, from days since noon in Greenwich on November 24, 4714 BC."""
        return (func.julianday("now") - UNIX_EPOCH_DAY) * SECONDS_A_DAY

    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text: SQLite compares it so."""
        return text

    def serialize_writes(self, connection: Connection, key: str) -> None:
        """Do nothing: there is one writer at a time."""

    def hits(self, index: WordIndex, wanted: Sequence[Term]) -> Subquery:
        """Return the rows that FTS5 matches; `rank` is a column that it gives its tables itself."""
        rows = index.table()
        matches = rows.c.words.match(to_fts5(wanted, stems=index.stems))
        return select(rows.c.rowid, rows.c.rank).where(matches).subquery()

    def _as_indexed(self, _index: WordIndex, words: ColumnElement[str]) -> ColumnElement[Any]:
        return words
