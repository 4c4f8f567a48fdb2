"""Text as the words to search it by, the same on every database, for what is kept and for what is asked. Pure.

Case and accents do not count. Scripts written without spaces (Han, kana, Thai, Lao, Khmer,
Burmese) are taken character by character, as neither database can tell their words apart.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

MAX_INDEXED_CHARS = 100_000
"""The most characters of one text that can be found; PostgreSQL refuses a `tsvector` over 1 MiB."""
MAX_WORD_CHARS = 64
MAX_QUERY_CHARS = 1_000
MAX_TERMS = 24
PREFIX_CHARS = 3
"""The length of the shortest word that also finds longer ones."""

Term = tuple[str, ...]
"""A term that is asked for: words that stand next to each other, mostly one."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_POSSESSIVE = re.compile(r"(?<=\w)['’]s\b", re.IGNORECASE)
_GAP = re.compile(r"[\s'’]+")
_PLURAL = re.compile(r"(?<=[a-z]{3})(ies|es|s)$")


def index_text(text: str) -> str:
    """Return the words of a text, a space between each two, as an index takes them."""
    return " ".join(_split(text[:MAX_INDEXED_CHARS]))


def parse_query(query: str) -> list[Term]:
    """Return what a query asks for, each term once; empty where it has no words.

    Whatever a query holds, nothing of it is syntax.
    """
    chunks = _GAP.split(_POSSESSIVE.sub("", query[:MAX_QUERY_CHARS]))
    found = list(dict.fromkeys(term for chunk in chunks if (term := tuple(_split(chunk)))))
    # A single letter finds half of everything; alone it may be what is meant.
    telling = [term for term in found if not (len(term) == 1 and len(term[0]) == 1 and term[0].isascii())]
    return (telling or found)[:MAX_TERMS]


def to_fts5(wanted: Sequence[Term], *, stems: bool = False) -> str:
    """Return the terms as SQLite's FTS5 reads them: any of them will do. `stems`: for an index of word stems."""
    return " OR ".join(
        f'"{" ".join((*term[:-1], last))}"{" *" if _is_prefix(last) else ""}'
        for term in wanted
        for last in _list_forms(term[-1], stems=stems)
    )


def to_tsquery(wanted: Sequence[Term], *, stems: bool = False) -> str:
    """Return the terms as PostgreSQL's `to_tsquery` reads them: any of them will do.

    `stems`: for an index of word stems.
    """
    return " | ".join(
        f"({' <-> '.join((*term[:-1], last))}{':*' if _is_prefix(last) else ''})"
        for term in wanted
        for last in _list_forms(term[-1], stems=stems)
    )


def excerpt(text: str, wanted: Sequence[Term], chars: int) -> str:
    """Return at most about `chars` of the text, around the first place that a term may mean."""
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
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if unicodedata.category(letter) != "Mn")
    # Composed again: Hangul, too, was taken apart.
    return unicodedata.normalize("NFC", "".join(letters)).casefold()


def _stem(word: str) -> str:
    """Return the word without an English plural's end, which is as far as this goes.

    As a prefix it finds both forms.
    """
    return _PLURAL.sub("", word) if len(word) > PREFIX_CHARS else word


def _list_forms(word: str, *, stems: bool) -> list[str]:
    # The index knows the stem of the whole word alone: `happiness` is `happi`, and `happines` is not.
    return list(dict.fromkeys((_stem(word), word))) if stems else [_stem(word)]


def _is_prefix(word: str) -> bool:
    return len(word) >= PREFIX_CHARS
