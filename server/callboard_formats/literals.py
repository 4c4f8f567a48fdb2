"""A set of literals to look for in text that is still coming.

Compiled into one regular expression over their common beginnings, so that looking for two
hundred spellings costs little more than looking for one. Matched without regard to case,
of ASCII letters alone: `K` (the Kelvin sign) is no `k` in any marker.
"""

import re
from collections.abc import Iterable

_FLAGS = re.IGNORECASE | re.ASCII
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
        whole, begun = (_whole(root), _begun(root)) if root else (_NEVER, _NEVER)
        # Asked first, so that most places are passed without a try of each branch.
        begins = f"(?=[{''.join(map(re.escape, root))}])" if root else ""
        self._any = re.compile(f"{begins}(?:({whole})|{begun}\\Z)", _FLAGS)
        self._whole = re.compile(begins + whole, _FLAGS)
        self._begun = re.compile(begun + r"\Z", _FLAGS)

    def find(self, text: str, start: int, *, final: bool) -> tuple[int, str]:
        """Return the place of the first literal from `start` on, and the literal in lower case, the longest one there.

        If there is none, return the text's length and "". Unless the text is `final`, return "" also where the text
        ends, from the returned place on, in what may still become a literal or a longer one.
        """
        match = (self._whole if final else self._any).search(text, start)
        if match is None:
            return len(text), ""
        at = match.start()
        is_begun = not final and (match.lastindex is None or self.may_grow(text, at))
        return at, "" if is_begun else match[0].lower()

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
