"""The SQL of PostgreSQL: full text with `tsvector`, advisory locks."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Subquery,
    Table,
    Text,
    bindparam,
    cast,
    collate,
    extract,
    func,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import REGCONFIG

from callboard.storage.sql.dialect import Dialect
from callboard.storage.sql.tables import WordIndex
from callboard.storage.words import Term, to_tsquery

SIMPLE = cast("simple", REGCONFIG)
"""The text search configuration without stemming and stop words."""
ENGLISH = cast("english", REGCONFIG)
"""The text search configuration with English stemming and stop words."""
SHORTER_FIRST = 1
"""The normalisation of `ts_rank` that divides by 1 + log(length); FTS5's `bm25` also ranks shorter texts higher."""

LOCK = select(func.pg_advisory_xact_lock(func.hashtext(bindparam("key", type_=Text))))


class PostgresqlDialect(Dialect):
    """See `callboard.storage.sql.dialect.Dialect`."""

    def insert(self, into: Table) -> Any:
        """Return PostgreSQL's `INSERT`."""
        return postgresql.insert(into)

    def now(self) -> ColumnElement[float]:
        """Return the clock of the database server."""
        return cast(extract("epoch", func.clock_timestamp()), Double)

    def by_code_point(self, text: ColumnElement[str]) -> ColumnElement[str]:
        """Return the text with the collation `C`."""
        return collate(text, "C")

    def serialize_writes(self, connection: Connection, key: str) -> None:
        """Take an advisory lock until the end of the transaction; its number is a hash of the key."""
        connection.execute(LOCK, {"key": key})

    def hits(self, index: WordIndex, wanted: Sequence[Term]) -> Subquery:
        """Return the rows whose `tsvector` matches."""
        rows = index.table()
        plain = func.to_tsquery(SIMPLE, to_tsquery(wanted))
        english = func.to_tsquery(ENGLISH, to_tsquery(wanted, stems=True))
        query = plain.op("||")(english) if index.stems else plain
        rank = -func.ts_rank(rows.c.words, query, SHORTER_FIRST)
        return select(rows.c.rowid, rank.label("rank")).where(rows.c.words.bool_op("@@")(query)).subquery()

    def _as_indexed(self, index: WordIndex, words: ColumnElement[str]) -> ColumnElement[Any]:
        plain = func.to_tsvector(SIMPLE, words)
        return plain.op("||")(func.to_tsvector(ENGLISH, words)) if index.stems else plain
