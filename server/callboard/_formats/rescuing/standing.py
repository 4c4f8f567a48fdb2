"""The place in Markdown that a line stands in, for telling a call that is made from one that is shown. Pure.

Follows https://spec.commonmark.org/0.31.2/ for fences, code spans, lazy continuation and HTML,
and GitHub's tables, as far as whole lines tell. In doubt the line belongs to what is shown: a
call that stays text does no harm.
"""

import re
from collections import Counter
from dataclasses import dataclass

from callboard_formats.quotation import PAIRS, QUOTES

# Possessive (`*+`), or a long row of blanks would be shared out in every way.
_FENCE = re.compile(
    r"(?P<before>[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t>]++)*+)(?P<run>`{3,}+(?=[^`]*$)|~{3,}+)", re.MULTILINE
)
_CLOSING = re.compile(r"(?P<before>[ \t>]*+)(?P<run>`{3,}+|~{3,}+)[ \t\r]*+")
_LITTLE = ("", " ", "  ", "   ")
"""Blanks that may stand before a fence that stands in nothing else."""
_SHOWN = re.compile(
    r"[ \t]*+(?:>|[-*+•◦▪‣](?:\s|\Z)|\d{1,9}[.)](?:\s|\Z)|\||\[[^\]\n]{1,100}\]:|<(?!/?think))|[ ]{2}|\t", re.IGNORECASE
)
_HTML = re.compile(r"[ \t]*+<(?!/?think)", re.IGNORECASE)
_DELIMITERS = re.compile(r"[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)++\|?[ \t\r]*+")
_LONE_RETURN = re.compile(r"\r(?!\Z)")
_RUN = re.compile(r"(\\?)(`++)")
_TAG = re.compile(
    r"<(/?)(pre|code|samp|kbd|xmp|script|style|textarea|blockquote|q|details|table|ul|ol)\b", re.IGNORECASE
)
_BEFORE_QUOTED = frozenset((*QUOTES, *PAIRS.values(), "(", "["))


@dataclass(frozen=True, slots=True)
class _Fence:
    """Fenced code; `before` is what stands before its first mark: blanks, or what it is in."""

    marks: str
    before: str

    def ends_with(self, line: str) -> bool:
        closing = _CLOSING.fullmatch(line)
        if closing is None or not closing["run"].startswith(self.marks):
            return False
        before = closing["before"]
        if self.before in _LITTLE:
            return before in _LITTLE
        if ">" in self.before:
            return ">" in before
        return before == " " * max(len(before), len(self.before))

    def goes_on_with(self, line: str) -> bool:
        """Return whether the line, which is not blank, is surely in the quote or list item that the fence is in."""
        if ">" in self.before:
            return line.lstrip(" ").startswith(">")
        return line.startswith(" " * max(1, len(self.before)))


class Standing:
    """The beginning of the line right after those that were `passed`."""

    def __init__(self) -> None:
        self._fence: _Fence | None = None
        self._inner: _Fence | None = None
        """A fence in a list item, a quote or indented: nobody says where that ends."""
        self._lost = False
        self._span = 0
        """The number of back-ticks that opened a code span in this paragraph."""
        self._shown = False
        """True where the paragraph has become part of a list, a quote, a table or HTML."""
        self._html = False
        """True where a line of the paragraph begins as HTML does, which goes on to the next blank line."""
        self._comment = False
        self._tags: Counter[str] = Counter()
        self._last = ""

    def may_call(self) -> bool:
        """Return whether what begins there at the margin is said by the model itself."""
        in_code = self._fence or self._inner or self._span
        in_html = self._comment or any(self._tags.values())
        quoted = self._last in _BEFORE_QUOTED
        return not (self._lost or in_code or in_html or quoted or self._shown)

    def passed(self, line: str) -> None:
        """Move on by a whole line, given without its line feed."""
        for one in _LONE_RETURN.split(line):
            self._pass(one)

    def _pass(self, line: str) -> None:
        # Other white space is no blank line in Markdown.
        words = line.strip(" \t\r")
        if self._lost or self._in_fence(line, words):
            return
        if not words:
            self._shown = False
            self._html = False
            self._span = 0
            return
        self._last = words[-1]
        if fence := _FENCE.match(line):
            self._open(fence)
            return
        self._html = self._html or _HTML.match(line) is not None
        self._shown = self._shown or bool(_SHOWN.match(line) or _DELIMITERS.fullmatch(line))
        self._read_html(line)
        for escape, run in _RUN.findall(line):
            length = len(run) - (1 if escape and not self._span else 0)
            if self._span == length:
                self._span = 0
            elif not self._span:
                self._span = length

    def _in_fence(self, line: str, words: str) -> bool:
        if self._inner is not None and words and not self._inner.goes_on_with(line):
            self._lost = True
        fence = self._fence or self._inner
        if fence is None:
            return False
        if fence.ends_with(line):
            self._fence = self._inner = None
        return True

    def _open(self, match: re.Match[str]) -> None:
        if self._html or self._comment or any(self._tags.values()) or "|" in match.string:
            # In HTML it is text, in a table's head it may be: which it is, is not told here.
            self._lost = True
        before = match["before"]
        if not before.strip() and before not in _LITTLE:
            # Code that is indented, text, or fenced code in a list.
            self._lost = True
        fence = _Fence(match["run"], before)
        if before:
            self._inner = fence
        else:
            self._fence = fence
            self._span = 0
            self._shown = False

    def _read_html(self, line: str) -> None:
        outside = _outside_spans(line)
        for slash, name in _TAG.findall(outside):
            count = self._tags[name.lower()] + (-1 if slash else 1)
            self._tags[name.lower()] = max(0, count)
        at = 0
        while (at := outside.find("-->" if self._comment else "<!--", at)) >= 0:
            self._comment = not self._comment
            at += 3


def _outside_spans(line: str) -> str:
    """Return the line with a blank for each code span that begins and ends in it."""
    runs = list(re.finditer("`+", line))
    if len(runs) < 2:
        return line
    closers: dict[int, list[int]] = {}
    for number in range(len(runs) - 1, -1, -1):
        closers.setdefault(len(runs[number][0]), []).append(number)
    kept: list[str] = []
    at = 0
    number = 0
    while number < len(runs):
        same = closers[len(runs[number][0])]
        while same and same[-1] <= number:
            same.pop()
        if same:
            kept.append(line[at : runs[number].start()])
            number = same[-1]
            at = runs[number].end()
        number += 1
    return " ".join([*kept, line[at:]])
