"""Decides whether a marker in an answer is quoted: then it is not used, and all of the quotation is shown unchanged.

A marker is quoted by a mark that was opened in its own line and is closed in its paragraph: a run of back-ticks by an
equal run, as in CommonMark, a quotation mark by its counterpart, `<code>` by `</code>`. `<pre>` and a comment continue
over lines. A mark that is never closed opens nothing. `markdown` tracks which marks are open; this module reads ahead
to find out whether they are closed.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cache

import regex

from callboard_formats.markdown import CLOSERS_OVER_LINES, PAIRS, QUOTES, MarkdownTracker
from callboard_formats.text_buffer import LOOK_BACK_CHARS, Reading, TextBuffer

# GigaChat's marker has a blank line behind it.
_PARAGRAPH_END = r"(?<!\|>)\n[ \t\r]{0,99}+\n"
_INDENTED_CODE = re.compile(r"\S[^\n]*\n(?:[ \t\r]*\n)+(?:(?: {4}| {0,3}\t)[^\n]*\n)*(?: {4}| {0,3}\t)[ \t]*\Z")
_LATER_IN_INDENTED_CODE = re.compile(
    r"[^\n]*\n(?:[ \t\r]*\n)*(?:(?: {4}| {0,3}\t)[ \t]*[^\s][^\n]*\n(?:[ \t\r]*\n)*){3,}(?: {4}| {0,3}\t)[ \t]*"
)


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


class QuotedText:
    """The quotations of the answer on `buffer`, asked about the marker at its place.

    It is told of the text that was `passed`, and of the places where something else than text ended. It is asked about
    a marker once all before it was passed.
    """

    def __init__(self, buffer: TextBuffer) -> None:
        self._buffer = buffer
        self._markdown = MarkdownTracker()
        self._double_marks = StraightMarks()
        self._single_marks = StraightMarks(single=True)
        self._sought: dict[str, int] = {}
        """For each closing mark, the place up to which it was searched for and not found."""
        self._end = 0
        """The end of the last quotation that a marker stood in and whose end was seen."""
        self._closing_mark = ""
        """What ends the quotation that a marker was last found to begin, or to stand in; "\\n" where its line does."""
        self._fence_end = 0
        """The place behind the fence that was closed last."""
        self.verbatim_to = 0
        """Text is shown to the letter up to this place, and then to what `verbatim_until` finds."""
        self.verbatim_until: re.Pattern[str] | None = None
        self.passed = self._markdown.feed
        """Go on behind this text: called with each token of a model."""

    def clear(self) -> None:
        """Begin anew, behind something that is no text."""
        self._markdown.restart()
        self.verbatim_until = None

    def leave_fence(self) -> None:
        """Begin anew behind a fence that ends here: its closing marks open nothing."""
        self._markdown.restart()
        self._fence_end = self._buffer.position

    def is_quoted(self, *, in_code: bool) -> Reading[bool]:
        """Return whether the marker here stands in a quotation that is closed, or in a program's string.

        `in_code`: the marker stands in programs for itself, so a string says nothing.
        """
        if (yield from self._is_in_closed_quotation()):
            return True
        return not in_code and (yield from self._is_in_string())

    def is_begun(self) -> bool:
        """Return whether the marker here stands right behind an opening mark, or further on in what that began."""
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        if buffer.position > buffer.boundary and (before == "\\" or self._is_in_quoted_line()):
            self._closing_mark = "\n"
            return True
        if self.is_right_behind_opening_mark():
            self._closing_mark = PAIRS.get(before, before)
            return True
        return self.verbatim_until is not None

    def is_right_behind_opening_mark(self) -> bool:
        """Return whether a quotation mark stands right before this place that closes nothing in its line."""
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        is_mark = buffer.position > max(buffer.boundary, self._fence_end) and bool(before) and before in QUOTES
        return is_mark and not ends_quotation(buffer.line_before())

    def is_in_indented_code(self) -> bool:
        """Return whether the marker here begins an indented line of code, with text before the code."""
        buffer = self._buffer
        if buffer.before(buffer.position, 1) not in (" ", "\t") or buffer.line_before().strip():
            return False
        start = max(buffer.base, buffer.position - LOOK_BACK_CHARS, buffer.boundary)
        before = buffer.text[start - buffer.base : buffer.index]
        # Of a long block the beginning is too far off: there are no lines but the code's then.
        is_later = len(before) == LOOK_BACK_CHARS and _LATER_IN_INDENTED_CODE.fullmatch(before)
        if not is_later and _INDENTED_CODE.search(before) is None:
            return False
        self._closing_mark = "\n"
        return True

    def is_in_sentence(self) -> bool:
        """Return whether words stand before the marker here that end no sentence, from the line's beginning on.

        What a model writes behind a call, in the call's line, is not a sentence of which it speaks.
        """
        buffer = self._buffer
        if buffer.before(buffer.position, 1) not in (" ", "\t"):
            return False
        line = buffer.line_before()
        begins_line = not buffer.boundary or buffer.boundary < buffer.position - len(line)
        return begins_line and line.rstrip(" \t").removesuffix(",")[-1:].isalpha()

    def quote_up_to(self, end: int) -> None:
        """Take what stands from here to `end` for quoted."""
        self._end = max(self._end, end)
        self.verbatim_to = max(self.verbatim_to, end)

    def is_known_to_be_quoted(self) -> bool:
        """Return whether this place stands in a quotation whose end was seen."""
        return self._buffer.position < self._end

    def quotes_closer(self, chars: int) -> Reading[bool]:
        """Return whether the thought's closer here, so many characters long, stands in quotation marks."""
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        if not before or before not in QUOTES or buffer.position <= buffer.boundary:
            return False
        while not buffer.final and buffer.position + chars >= buffer.end:
            yield
        behind = buffer.index + chars
        return is_closer_quoted(buffer.line_before(), buffer.text[behind : behind + 1])

    def take_verbatim_to_end(self) -> None:
        """Show to the letter what follows, up to the end of the quotation that holds this place."""
        self.verbatim_to = max(self._buffer.position, self._end)
        self.verbatim_until = None

    def take_verbatim_until_closed(self) -> None:
        """Show to the letter what follows, up to what closes the quotation that has begun, or the line's end."""
        self.verbatim_to = self._buffer.position
        self.verbatim_until = re.compile(f"[{re.escape(self._closing_mark)}\n]")

    def verbatim_end(self, start: int) -> int:
        """Return up to where the text from `start` to this place is to be shown to the letter; `start` if it is not."""
        buffer = self._buffer
        if start < self.verbatim_to:
            return min(self.verbatim_to, buffer.position)
        if self.verbatim_until is None:
            return start
        closing_mark = self.verbatim_until.search(buffer.cut(start, buffer.position))
        if closing_mark is None:
            return buffer.position
        self.verbatim_until = None
        return start + closing_mark.start()

    def _is_in_quoted_line(self) -> bool:
        """Return whether the marker here stands further on in a line of a block quotation or a table."""
        # Most fences begin a line: of what comes before them nothing is looked at then.
        return not self._buffer.at_line_start() and self._markdown.is_in_quoted_line()

    def _is_in_closed_quotation(self) -> Reading[bool]:
        """Return whether the marker here stands in a quotation that ends within its paragraph."""
        buffer = self._buffer
        if self.is_known_to_be_quoted():
            return True
        for closer in self._markdown.open_quotations():
            if closer == '"' and buffer.before(buffer.position, 1) != '"':
                yield from self._read_marks(self._double_marks)
                end = self._closed_in_line(self._double_marks)
            else:
                end = yield from self._closed_at(closer)
            if end is not None:
                self._end = end
                return True
            self._markdown.forget_quotation(closer)
        return False

    def _closed_at(self, closer: str) -> Reading[int | None]:
        """Return where a quotation is closed; None where its paragraph ends before that."""
        buffer = self._buffer
        pattern = end_of(closer)
        while True:
            start = max(buffer.position, self._sought.get(closer, 0))
            found = pattern.search(buffer.text, start - buffer.base, partial=not buffer.final)
            self._sought[closer] = buffer.base + found.start() if found else buffer.end
            # Another back-tick may follow the last one.
            if buffer.final or (found and not found.partial and found.end() < len(buffer.text)):
                if found is None and buffer.is_cut:
                    return buffer.end
                return buffer.base + found.start() if found and found["closer"] else None
            yield

    def _closed_in_line(self, marks: StraightMarks) -> int | None:
        """Return where a quotation in straight marks is closed; None if that is not in its line."""
        buffer = self._buffer
        end = marks.closer(buffer.position)
        # Of a line that was cut off nobody saw the other mark.
        return buffer.end if end is None and buffer.is_cut and marks.end == buffer.end else end

    def _is_in_string(self) -> Reading[bool]:
        """Return whether the marker here stands in a program's string that ends in its line."""
        if not self._markdown.is_in_string():
            return False
        yield from self._read_marks(self._single_marks)
        end = self._closed_in_line(self._single_marks)
        self._end = end if end is not None else self._end
        return end is not None

    def _read_marks(self, marks: StraightMarks) -> Reading[None]:
        """Read the straight quotation marks in the rest of the line."""
        buffer = self._buffer
        if buffer.position < marks.end:
            return
        while True:
            sought = max(buffer.position, self._sought.get("\n", 0))
            line_end = buffer.text.find("\n", sought - buffer.base)
            if line_end >= 0 or buffer.final:
                break
            self._sought["\n"] = buffer.end
            yield
        index = buffer.index
        marks.read(buffer.text[index : line_end if line_end >= 0 else len(buffer.text)], buffer.position)


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
    if closer in CLOSERS_OVER_LINES:
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


def is_closer_quoted(before: str, following: str) -> bool:
    """Return whether a closer that stands between these texts stands in quotation marks."""
    mark = before[-1:]
    if not mark or mark not in QUOTES or following != PAIRS.get(mark, mark):
        return False
    return not ends_quotation(before[before.rfind("\n") + 1 :])
