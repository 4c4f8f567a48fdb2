"""A set of literals to look for in text that is still coming.

Compiled into one regular expression over their common beginnings, so that looking for two
hundred spellings costs little more than looking for one. Matched without regard to case,
of ASCII letters alone: `K` (the Kelvin sign) is no `k` in any marker.
"""

import re
from collections.abc import Iterable, Mapping

_NEVER = r"(?!)"
_END = ""

_Trie = dict[str, "_Trie"]


class Literals:
    """The literals to find, `texts`; none of them empty, perhaps none at all."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded = {_fold(text) for text in texts}
        self._longest = max(map(len, folded), default=0)
        root: _Trie = {}
        for text in folded:
            node = root
            for character in text:
                node = node.setdefault(character, {})
            node[_END] = {}
        self._whole = _compile({first: _whole(below) for first, below in root.items()})
        self._begun = re.compile((_begun(root) if root else _NEVER) + r"\Z", re.IGNORECASE | re.ASCII)
        self.search_begun = _compile({first: _whole_or_begun(below) for first, below in root.items()}).search
        """Return the first of them from a place in a text on, or what may become one where the text ends.

        Not a method of ours: it is asked with each token of a model, mostly in vain.
        """

    def find(self, text: str, start: int, *, final: bool) -> tuple[int, str]:
        """Return the place of the first literal from `start` on, and the literal in lower case, the longest one there.

        If there is none, return the text's length and "". Unless the text is `final`, return "" also where the text
        ends, from the returned place on, in what may still become a literal or a longer one.
        """
        if final:
            found = self._whole.search(text, start)
            return (found.start(), found[0].lower()) if found else (len(text), "")
        begun = self.search_begun(text, start)
        return self.read_begun(begun) if begun else (len(text), "")

    def read_begun(self, match: re.Match[str]) -> tuple[int, str]:
        """Return what `find` returns for a text that is not final, given what `search_begun` found in it."""
        return match.start(), "" if match.lastindex is None else match[0].lower()

    def search(self, text: str, start: int) -> re.Match[str] | None:
        """Return the first of them from `start` on, the longest where several begin at one place."""
        return self._whole.search(text, start)

    def match(self, text: str, start: int) -> re.Match[str] | None:
        """Return the longest of them that stands at `start`."""
        return self._whole.match(text, start)

    def may_grow(self, text: str, start: int) -> bool:
        """Return whether all of `text` from `start` on is the beginning of one, but not all of it."""
        return len(text) - start < self._longest and self._begun.match(text, start) is not None


def _fold(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)


def _compile(rests: Mapping[str, str]) -> re.Pattern[str]:
    """Return the expression of literals, given what matches the rest of those that begin with a character.

    Of branches that each begin with one character, in its own case, `re` makes a set that it passes most places by.
    """
    branches = [
        f"{re.escape(spelling)}(?i:{rest})"
        for first, rest in rests.items()
        for spelling in dict.fromkeys((first, first.upper() if first.isascii() else first))
    ]
    return re.compile("|".join(branches) or _NEVER, re.ASCII)


def _whole_or_begun(node: _Trie) -> str:
    """Return what matches to the text's end where a literal is only begun there, else all of one, as a group."""
    deeper = node.keys() - {_END}
    if not deeper:
        return "()"
    begun = f"{_begun(node)}?" if _has_depth(node, deeper) else ""
    return f"(?:{begun}\\Z|({_whole(node)}))"


def _whole(node: _Trie) -> str:
    """Return what matches from `node` to the end of a literal, the longest first."""
    branches = [re.escape(character) + _whole(below) for character, below in node.items() if character != _END]
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + ("?" if _END in node else "")


def _begun(node: _Trie) -> str:
    """Return what matches one character or more from `node` on, but never to the end of the longest."""
    branches = []
    for character, below in node.items():
        if character != _END and (deeper := below.keys() - {_END}):
            branches.append(re.escape(character) + (f"{_begun(below)}?" if _has_depth(below, deeper) else ""))
    return f"(?:{'|'.join(branches)})"


def _has_depth(node: _Trie, characters: Iterable[str]) -> bool:
    return any(node[character].keys() - {_END} for character in characters)
