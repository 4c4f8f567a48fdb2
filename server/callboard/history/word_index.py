"""The full-text indexes: FTS5 tables on SQLite, `tsvector` columns on PostgreSQL, made by migrations 0002 and 0003.

Written in the transaction that writes the text. What is deleted leaves its index by a
trigger on SQLite and by its foreign key on PostgreSQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Subquery, TableClause, cast, column, delete, func, insert, select, table
from sqlalchemy.dialects.postgresql import REGCONFIG
from sqlalchemy.ext.asyncio import AsyncConnection

from callboard.history.words import Term, fts5_query, indexed, tsquery

SIMPLE = cast("simple", REGCONFIG)
"""PostgreSQL's configuration without any language: no stemming, no stop words."""
ENGLISH = cast("english", REGCONFIG)
"""Its configuration that knows English words by their stems, and has stop words."""
SHORTER_FIRST = 1
"""`ts_rank` divides by 1 + the logarithm of the text's length, as `bm25` does in its own way."""


@dataclass(frozen=True, slots=True)
class WordIndex:
    """One index; its rows have the ids of the rows that hold the text.

    `stems`: English words are found in their other forms too (`drinking` by `drinks`).
    On SQLite the index itself was made so.
    """

    name: str
    stems: bool = False

    async def add(self, connection: AsyncConnection, row_id: int, text: str) -> None:
        """Make a new row found by its words."""
        if words := indexed(text):
            await connection.execute(
                insert(self._table()).values(rowid=row_id, words=self._stored(words, connection.dialect.name))
            )

    async def change(self, connection: AsyncConnection, row_id: int, text: str) -> None:
        """Make a row found by its new words, and no longer by the old ones."""
        rows = self._table()
        await connection.execute(delete(rows).where(rows.c.rowid == row_id))
        await self.add(connection, row_id, text)

    def hits(self, wanted: Sequence[Term], dialect: str) -> Subquery:
        """The rows with any of the terms: `rowid`, and `rank`, of which the lowest is the best."""
        rows = self._table()
        if dialect == "postgresql":
            plain = func.to_tsquery(SIMPLE, tsquery(wanted))
            english = func.to_tsquery(ENGLISH, tsquery(wanted, stems=True))
            query = plain.op("||")(english) if self.stems else plain
            rank = -func.ts_rank(rows.c.words, query, SHORTER_FIRST)
            found = select(rows.c.rowid, rank.label("rank")).where(rows.c.words.bool_op("@@")(query))
        else:
            # `rank` is a column that FTS5 itself gives its tables.
            found = select(rows.c.rowid, rows.c.rank).where(rows.c.words.match(fts5_query(wanted, stems=self.stems)))
        return found.subquery()

    def _stored(self, words: str, dialect: str) -> Any:
        if dialect != "postgresql":
            return words
        plain = func.to_tsvector(SIMPLE, words)
        return plain.op("||")(func.to_tsvector(ENGLISH, words)) if self.stems else plain

    def _table(self) -> TableClause:
        return table(self.name, column("rowid"), column("words"), column("rank"))


MEMORY_WORDS = WordIndex("memory_words", stems=True)
MESSAGE_WORDS = WordIndex("message_words")
