"""What stands in quotation in running text: code spans, HTML's code, and text between paired quotation marks.

A marker is quoted by what was opened in its own line and is closed in its paragraph: a run of back-ticks by as many, as
in CommonMark, a quotation mark by its other one, `<code>` by `</code>`. `<pre>` and a comment go over lines. What is
never closed opens nothing.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cache

import regex

PAIRS = {
    "“": "”", "‘": "’", "«": "»", "»": "«", "„": "“", "‚": "‘", "‹": "›", "›": "‹", "「": "」", "『": "』", "《": "》",
}  # fmt: skip
"""The quotation marks that have another one to close them; French writes `«…»`, German `»…«` and `„…“`."""
QUOTES = "`\"'" + "".join(PAIRS)
"""The characters right behind which a marker is spoken of, not used; so is what follows it, up to the closing one."""
BEFORE_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*[ \t]*")
"""What may stand before a fence in its line: that of a list, or of a quotation."""
BEFORE_CLOSING_FENCE = re.compile(r"[ \t>]*")
MAX_UNREAD = 500
"""The pieces of text that are kept before they are looked at together."""

_CODE = "code|pre|kbd|samp|tt|xmp"
"""HTML's elements for code."""
_COMMENT_END = "-->"
_OVER_LINES = ("</pre>", "</xmp>", _COMMENT_END)
"""What closes a quotation that goes over lines and paragraphs."""
_MARK = re.compile(
    r"`+|[\n\"'" + "".join(dict.fromkeys([*PAIRS, *PAIRS.values()])) + r"]|\\[\\']|<!--|-->"
    rf"|<(?P<closes>/?)(?P<tag>{_CODE})(?:[ \t][^<>\n]{{0,80}})?>",
    re.IGNORECASE,
)
_BEGUN_MARK = re.compile(rf"(?:<(?:!-?|/?[a-z]{{0,4}}|(?:{_CODE})[ \t][^<>\n]{{0,80}})|--?|\\)\Z", re.IGNORECASE)
_BEFORE_STRING = re.compile(r"(?:[=(\[{,:+]|\breturn)[ \t]{0,9}[fbru]{0,2}\Z", re.IGNORECASE)
_QUOTED_LINE = re.compile(r" {0,3}[>|]")
_TAIL_CHARS = 20
_HEAD_CHARS = 4
_BEFORE_OPENING = frozenset(" \t\n([{:,=>")
# GigaChat's marker has a blank line behind it.
_PARAGRAPH_END = r"(?<!\|>)\n[ \t\r]{0,99}+\n"


@dataclass(slots=True)
class Quotations:
    """The quotations that were opened in a line of text and not closed yet, read in pieces."""

    _open: list[str] = field(default_factory=list)
    """What would close each of them, the outermost first."""
    _is_in_string: bool = False
    _run: str = ""
    """The back-ticks that the text so far ends in: there may be more of them."""
    _head: str = ""
    """The first characters of the line."""
    _tail: str = "\n"
    """The last characters of the text so far."""
    _unread: list[str] = field(default_factory=list)
    """The text that was not looked at yet: few ask what is open in it."""

    def clear(self) -> None:
        """Begin anew, behind something that is no text."""
        self._unread.clear()
        self._open.clear()
        self._is_in_string = False
        self._run = ""
        self._head = ""
        self._tail = "\n"

    def passed(self, text: str) -> None:
        """Go on behind this text."""
        self._unread.append(text)
        if len(self._unread) > MAX_UNREAD:
            self._look()

    def closers(self) -> tuple[str, ...]:
        """Return what would close each of the quotations, the outermost first; the text has no more back-ticks here."""
        self._look()
        if self._run:
            self._end_run()
        return tuple(self._open)

    def is_in_string(self) -> bool:
        """Return whether a string in single quotation marks, as programs have them, was opened and not closed."""
        self._look()
        return self._is_in_string

    def is_quoted_line(self) -> bool:
        """Return whether the line is one of a block quotation or a table."""
        self._look()
        return _QUOTED_LINE.match(self._head) is not None

    def forget(self, closer: str) -> None:
        """Take the quotation for none: its paragraph ends without `closer`."""
        self._open.remove(closer)

    def _look(self) -> None:
        text = "".join(self._unread)
        self._unread.clear()
        if begun := _BEGUN_MARK.search(text):
            self._unread.append(begun[0])
            text = text[: begun.start()]
        if not text:
            return
        if self._run and not text.startswith("`"):
            self._end_run()
        for mark in _MARK.finditer(text):
            if mark[0][0] == "`":
                self._run += mark[0]
                if mark.end() < len(text):
                    self._end_run()
            else:
                self._meet(mark, text[max(0, mark.start() - _TAIL_CHARS) : mark.start()])
        line_begin = text.rfind("\n") + 1
        self._head = ((self._head if not line_begin else "") + text[line_begin:][:_HEAD_CHARS])[:_HEAD_CHARS]
        self._tail = (self._tail + text)[-_TAIL_CHARS:]

    def _meet(self, mark: re.Match[str], before: str) -> None:
        """Open or close what the mark does, which is no back-tick; `before` are the characters before it."""
        text = mark[0]
        if len(before) < _TAIL_CHARS:
            before = self._tail + before
        if text == "\n":
            self._open = [closer for closer in self._open if closer in _OVER_LINES]
            self._is_in_string = False
        elif text == '"':
            self._straight_mark(before[-1])
        elif text == "'":
            # Elsewhere it is an apostrophe.
            self._is_in_string = not self._is_in_string and _BEFORE_STRING.search(before) is not None
        elif mark["tag"]:
            self._tag(f"</{mark['tag'].lower()}>", closes=bool(mark["closes"]))
        elif text in ("<!--", _COMMENT_END):
            self._tag(_COMMENT_END, closes=text == _COMMENT_END)
        elif text in self._open:
            self._close(text)
        elif text in PAIRS and PAIRS[text] not in self._open:
            self._open.append(PAIRS[text])

    def _straight_mark(self, before: str) -> None:
        if '"' not in self._open:
            # What stands behind a word is the sign of inches, or ends what began in another line.
            if before in _BEFORE_OPENING:
                self._open.append('"')
        elif before != "\\":
            self._close('"')

    def _tag(self, closer: str, *, closes: bool) -> None:
        if closer not in self._open:
            if not closes:
                self._open.append(closer)
        elif closes:
            self._close(closer)

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


@cache
def end_of(closer: str) -> "regex.Pattern[str]":
    """Return the pattern of `closer`, as the group `closer`, or of the end of the paragraph before it.

    A straight quotation mark closes what begins with a marker where it stands right behind one.
    """
    if closer in _OVER_LINES:
        return regex.compile(f"(?P<closer>{closer})", regex.IGNORECASE)
    alone = f"(?<!`)`{{{len(closer)}}}(?!`)" if closer[0] == "`" else _BEHIND_MARKER if closer == '"' else closer
    return regex.compile(rf"(?P<closer>{alone})|{_PARAGRAPH_END}", regex.IGNORECASE)


_EXAMPLE = re.compile(
    r"\b(?:examples?|instance|e\.g|such|looks? like|would not|wouldn't|do not|don't|never"
    r"|beispiel\w*|exemples?|ejemplos?|esempio)\b|例",
    re.IGNORECASE,
)


def introduces_example(before: str) -> bool:
    """Return whether the last line of this text says that what follows is an example, or is not to be done."""
    line = before.rstrip().rpartition("\n")[2].rstrip("*_ \t")
    return line.endswith((":", "：")) and _EXAMPLE.search(line) is not None


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
