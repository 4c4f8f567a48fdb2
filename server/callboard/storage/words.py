"""Splits texts and queries into the words of the full-text indexes, the same on every database. Pure.

Case and accents are ignored. In scripts without spaces (Han, kana, Thai, Lao, Khmer, Burmese) each character is a word,
because neither database can split them into words.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

MAX_INDEXED_CHARS = 100_000
"""The length of a text's indexed beginning; PostgreSQL refuses a `tsvector` over 1 MiB."""
MAX_WORD_CHARS = 64
MAX_QUERY_CHARS = 1_000
MAX_TERMS = 24
PREFIX_CHARS = 3
"""The length of the shortest word in a query that also matches longer words."""

Term = tuple[str, ...]
"""A term of a query: adjacent words, usually one."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_POSSESSIVE = re.compile(r"(?<=\w)['’]s\b", re.IGNORECASE)
_GAP = re.compile(r"[\s'’]+")
_PLURAL = re.compile(r"(?<=[a-z]{3})(ies|es|s)$")


def index_text(text: str) -> str:
    """Return the normalised words of a text, separated by spaces."""
    return " ".join(_split(text[:MAX_INDEXED_CHARS]))


def parse_query(query: str) -> list[Term]:
    """Return the distinct terms of a query, empty if it has no words. Queries have no operators."""
    chunks = _GAP.split(_POSSESSIVE.sub("", query[:MAX_QUERY_CHARS]))
    found = list(dict.fromkeys(term for chunk in chunks if (term := tuple(_split(chunk)))))
    # A single letter matches too many texts; it is used only if the query has nothing else.
    longer = [term for term in found if not (len(term) == 1 and len(term[0]) == 1 and term[0].isascii())]
    return (longer or found)[:MAX_TERMS]


def to_fts5(wanted: Sequence[Term], *, stems: bool = False) -> str:
    """Return a query for SQLite's FTS5 that matches any of the terms. `stems`: the index has word stems."""
    return " OR ".join(
        f'"{" ".join(term)}"{" *" if _is_prefix(term[-1]) else ""}' for term in _list_forms(wanted, stems=stems)
    )


def to_tsquery(wanted: Sequence[Term], *, stems: bool = False) -> str:
    """Return a query for PostgreSQL's `to_tsquery` that matches any of the terms. `stems`: as in `to_fts5`."""
    return " | ".join(
        f"({' <-> '.join(term)}{':*' if _is_prefix(term[-1]) else ''})" for term in _list_forms(wanted, stems=stems)
    )


def excerpt(text: str, wanted: Sequence[Term], chars: int) -> str:
    """Return about `chars` characters of the text, around the first word that a term may match."""
    starts = tuple(_stem(term[0]) for term in wanted)
    place = next((word.start() for word in _WORD.finditer(text) if starts and _fold(word[0]).startswith(starts)), 0)
    start = max(0, min(place - chars // 3, len(text) - chars))
    end = start + chars
    shown = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"


def _split(text: str) -> Iterator[str]:
    return (word[:MAX_WORD_CHARS] for word in _WORD.findall(_fold(_POSSESSIVE.sub("", text))))


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Each character by itself, because normalising a long run of combining marks takes quadratic time.
    parts = (part for character in text for part in unicodedata.normalize("NFKD", character))
    letters = (part for part in parts if unicodedata.category(part) != "Mn" and not unicodedata.combining(part))
    # NFKD also decomposes Hangul syllables, so compose again.
    return unicodedata.normalize("NFC", "".join(letters)).casefold()


def _stem(word: str) -> str:
    """Return the word without an English plural ending; used as a prefix, it matches singular and plural."""
    return _PLURAL.sub("", word) if len(word) > PREFIX_CHARS else word


def _list_forms(wanted: Sequence[Term], *, stems: bool) -> Iterator[Term]:
    """Yield each term with the stem of its last word; if the index has word stems, also as it is."""
    for *first, last in wanted:
        yield *first, _stem(last)
        # The index has the stem of the whole word: it stems `happiness` to `happi`, which `happines` does not match.
        if stems and last != _stem(last):
            yield *first, last


def _is_prefix(word: str) -> bool:
    return len(word) >= PREFIX_CHARS
