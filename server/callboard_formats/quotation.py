"""What stands in quotation in running text: code spans, and text between paired quotation marks.

A code span goes from a run of back-ticks to the next run of as many, says CommonMark, within its paragraph. One that
is never closed opens nothing.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field

import regex

PAIRS = {"“": "”", "«": "»", "„": "“", "‹": "›", "「": "」"}
MAX_UNREAD = 500
"""The pieces of text that are kept before they are looked at together."""

_MARK = re.compile(r"`+|[\n\"" + "".join(dict.fromkeys([*PAIRS, *PAIRS.values()])) + "]")
_BEFORE_OPENING = frozenset(" \t\n([{:,=>")
# GigaChat's marker has a blank line behind it.
_PARAGRAPH_END = r"(?<!\|>)\n[ \t\r]{0,99}+\n"


@dataclass(slots=True)
class Quotations:
    """The quotations that were opened in a line of text and not closed yet, read in pieces."""

    _open: list[str] = field(default_factory=list)
    _run: str = ""
    """The back-ticks that the text so far ends in: there may be more of them."""
    _last: str = "\n"
    """The last character of the text so far."""
    _unread: list[str] = field(default_factory=list)
    """The text that was not looked at yet: few ask what is open in it."""

    def clear(self) -> None:
        """Begin anew, behind something that is no text."""
        self._unread.clear()
        self._open.clear()
        self._run = ""
        self._last = "\n"

    def passed(self, text: str) -> None:
        """Go on behind this text."""
        self._unread.append(text)
        if len(self._unread) > MAX_UNREAD:
            self._look()

    def _look(self) -> None:
        text = "".join(self._unread)
        self._unread.clear()
        if self._run and not text.startswith("`"):
            self._end_run()
        for mark in _MARK.finditer(text):
            if mark[0][0] == "`":
                self._run += mark[0]
                if mark.end() < len(text):
                    self._end_run()
            elif mark[0] == "\n":
                self._open.clear()
            elif mark[0] == '"':
                self._straight_mark(text[mark.start() - 1] if mark.start() else self._last)
            elif mark[0] in self._open:
                self._close(mark[0])
            elif mark[0] in PAIRS and PAIRS[mark[0]] not in self._open:
                self._open.append(PAIRS[mark[0]])
        self._last = text[-1:] or self._last

    def _straight_mark(self, before: str) -> None:
        if '"' not in self._open:
            # What stands behind a word is the sign of inches, or ends what began in another line.
            if before in _BEFORE_OPENING:
                self._open.append('"')
        elif before != "\\":
            self._close('"')

    def closers(self) -> tuple[str, ...]:
        """Return what would close each of the quotations, the outermost first; the text has no more back-ticks here."""
        self._look()
        if self._run:
            self._end_run()
        return tuple(self._open)

    def forget(self, closer: str) -> None:
        """Take the quotation for none: its paragraph ends without `closer`."""
        self._open.remove(closer)

    def _end_run(self) -> None:
        run = self._run
        self._run = ""
        if run in self._open:
            self._close(run)
        else:
            self._open.append(run)

    def _close(self, closer: str) -> None:
        del self._open[self._open.index(closer) :]


def ends_quotation(line: str) -> bool:
    """Return whether the mark that `line` ends in closes a quotation, or is an apostrophe or the sign of inches.

    No quotation begins right behind a word. Elsewhere a mark closes where those of the line are pairs, of back-ticks
    those of as many.
    """
    mark = line[-1:]
    if mark not in _SAME_MARKS:
        return False
    rest = line.rstrip(mark)
    if not rest or rest[-1].isspace() or rest[-1] in _OPENING:
        return False
    if mark != "`" and rest[-1].isalnum() and not _STRING_PREFIX.search(rest):
        return True
    run = line[len(rest) :] if mark == "`" else mark
    return _SAME_MARKS[mark].findall(line).count(run) % 2 == 0


_SAME_MARKS = {
    '"': re.compile('"'),
    # Within a word it is an apostrophe.
    "'": re.compile(r"(?<!\w)'|'(?!\w)"),
    "`": re.compile("`+"),
}
"""The marks that close as they open."""
_OPENING = frozenset("([{:=")
_STRING_PREFIX = re.compile(r"(?<!\w)[fbru]{1,2}\Z", re.IGNORECASE)

_BEHIND_MARKER = r"(?<=[>\]])\"(?!\w)"


def end_of(closer: str) -> "regex.Pattern[str]":
    """Return the pattern of `closer`, as the group `closer`, or of the end of the paragraph before it.

    A straight quotation mark closes what begins with a marker where it stands right behind one.
    """
    alone = f"(?<!`)`{{{len(closer)}}}(?!`)" if closer[0] == "`" else _BEHIND_MARKER if closer == '"' else closer
    return regex.compile(rf"(?P<closer>{alone})|{_PARAGRAPH_END}")


_IN_STRING = re.compile(r"(?:[=(\[{,:+]|\breturn)[ \t]{0,9}[fbru]{0,2}'(?:[^'\\]|\\.)*\Z", re.IGNORECASE)


def ends_in_string(line: str) -> bool:
    """Return whether `line` ends within a string in single quotation marks, as programs have them."""
    return "'" in line and _IN_STRING.search(line) is not None


@dataclass(slots=True)
class StraightMarks:
    """The straight quotation marks in the rest of a line, from one marker in it on; `single` or double ones.

    A quotation is closed where their number is odd: those of a call's JSON are pairs.
    """

    single: bool = False
    end: int = 0
    _places: list[int] = field(default_factory=list)

    def read(self, text: str, start: int) -> None:
        """Read the rest of a line, which begins at the place `start` of the answer."""
        marks = (_SINGLE if self.single else _DOUBLE).finditer(text)
        self._places = [start + mark.start() for mark in marks if mark[0][0] != "\\"]
        self.end = start + len(text)

    def closer(self, place: int) -> int | None:
        """Return where the quotation ends that `place` stands in; None where it is none."""
        number = bisect_left(self._places, place)
        return self._places[number] if (len(self._places) - number) % 2 else None


_DOUBLE = re.compile(r"\"|\\.")
# Within a word it is an apostrophe.
_SINGLE = re.compile(r"(?<!\w)'|'(?!\w)|\\.")
