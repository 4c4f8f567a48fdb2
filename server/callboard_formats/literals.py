"""Searches for a set of literals in text that is still streamed.

A short regular expression finds the first characters of the literals, and the literals are compared only there. One
expression of all literals would search as fast. But `re` needs 100 ms to compile four hundred literals, and each kind
of thought has its own set. This would block the event loop while a server reads its first answer.

ASCII letters match regardless of case. Other letters do not: `K` (the Kelvin sign) is no `k`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import groupby
from string import ascii_lowercase, ascii_uppercase

_BEGINNING_CHARS = 3
"""Three characters exclude nearly all prose. Four exclude no more prose, but take twice as long to compile."""

_TO_LOWER_CASE = str.maketrans(ascii_uppercase, ascii_lowercase)


class Literals:
    """A set of literals. `texts` must not contain an empty string."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._sorted = sorted({text.translate(_TO_LOWER_CASE) for text in texts})
        self._longest = max(map(len, self._sorted), default=0)
        self._by_beginning: dict[str, list[str]] = {}
        for text in sorted(self._sorted, key=len, reverse=True):
            self._by_beginning.setdefault(text[:_BEGINNING_CHARS], []).append(text)
        self._search_beginning = _compile_beginnings(self._by_beginning).search

    def find(self, text: str, start: int, *, final: bool) -> tuple[int, str]:
        """Return the index of the first literal from `start` on, and the longest literal there in lower case.

        If there is none, return the text's length and "". If the text is not `final` and its rest may become a literal,
        or a longer literal, return the index of this rest and "".
        """
        while beginning := self._search_beginning(text, start):
            place = beginning.start()
            if not final and self.may_grow(text, place):
                return place, ""
            if found := self._find_longest(text, place):
                return place, found
            start = place + 1
        return len(text), ""

    def search(self, text: str, start: int) -> tuple[int, str] | None:
        """Return the result of `find` for a final text; None if there is no literal."""
        place, found = self.find(text, start, final=True)
        return (place, found) if found else None

    def match(self, text: str, start: int) -> str:
        """Return the longest literal at `start` in the case of the text; "" if there is none."""
        return text[start : start + len(self._find_longest(text, start))]

    def may_grow(self, text: str, start: int) -> bool:
        """Return whether the rest of `text` from `start` on is a proper prefix of a literal."""
        if not 0 < len(text) - start < self._longest:
            return False
        rest = text[start:].translate(_TO_LOWER_CASE)
        next_one = bisect_right(self._sorted, rest)
        return next_one < len(self._sorted) and self._sorted[next_one].startswith(rest)

    def _find_longest(self, text: str, start: int) -> str:
        rest = text[start : start + self._longest].translate(_TO_LOWER_CASE)
        # The shorter the key, the shorter its literals.
        for chars in range(_BEGINNING_CHARS, 0, -1):
            for one in self._by_beginning.get(rest[:chars], ()):
                if rest.startswith(one):
                    return one
        return ""


def _compile_beginnings(beginnings: Mapping[str, object]) -> re.Pattern[str]:
    """Return an expression that matches one of these beginnings, or a part of one at the end of the text.

    Each branch begins with one case-sensitive character, because `re` combines these characters to a set. With the set,
    it skips other text quickly.
    """
    branches = [
        f"{re.escape(spelling)}(?i:{_match_rests(rests)})"
        for first, rests in _group_by_first_character(beginnings)
        for spelling in dict.fromkeys((first, first.upper() if first.isascii() else first))
    ]
    return re.compile("|".join(branches) or r"(?!)", re.ASCII)


def _match_rests(rests: list[str]) -> str:
    if "" in rests:
        return ""
    branches = [re.escape(first) + _match_rests(deeper) for first, deeper in _group_by_first_character(rests)]
    return "(?:" + "|".join([*branches, r"\Z"]) + ")"


def _group_by_first_character(texts: Iterable[str]) -> list[tuple[str, list[str]]]:
    return [(first, [text[1:] for text in group]) for first, group in groupby(sorted(texts), key=lambda text: text[0])]
