"""Decides whether a marker in an answer is quoted. A quoted marker has no meaning and is shown unchanged.

A marker is quoted if a quotation was opened before it in its line and is closed in its paragraph. A run of back-ticks
is closed by an equal run, as in CommonMark, a quotation mark by its counterpart, and `<code>` by `</code>`. `<pre>` and
a comment may continue over several lines. A mark that is never closed opens no quotation. The module `markdown` tracks
which marks are open. This module reads ahead to find out whether they are closed.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cache

import regex

from callboard_formats.markdown import MarkdownTracker
from callboard_formats.quotation_marks import CLOSERS_OVER_LINES, PAIRS, QUOTES
from callboard_formats.text_buffer import LOOK_BACK_CHARS, Reading, TextBuffer

# GigaChat's marker has a blank line behind it.
_PARAGRAPH_END = r"(?<!\|>)\n[ \t\r]{0,99}+\n"
_INDENTED_CODE = re.compile(r"\S[^\n]*\n(?:[ \t\r]*\n)+(?:(?: {4}| {0,3}\t)[^\n]*\n)*(?: {4}| {0,3}\t)[ \t]*\Z")
_LATER_IN_INDENTED_CODE = re.compile(
    r"[^\n]*\n(?:[ \t\r]*\n)*(?:(?: {4}| {0,3}\t)[ \t]*[^\s][^\n]*\n(?:[ \t\r]*\n)*){3,}(?: {4}| {0,3}\t)[ \t]*"
)


@dataclass(slots=True)
class StraightMarks:
    """The straight quotation marks in the rest of a line, behind a marker. They are `single` or double marks.

    An odd number of marks means that the quotation is closed, because the marks in a call's JSON are pairs.
    """

    single: bool = False
    end: int = 0
    _places: list[int] = field(default_factory=list)

    def read(self, text: str, start: int) -> None:
        """Read the rest of a line, which begins at the position `start`."""
        marks = (_SINGLE if self.single else _DOUBLE).finditer(text)
        self._places = [start + mark.start() for mark in marks if mark[0][0] != "\\"]
        self.end = start + len(text)

    def closer(self, place: int) -> int | None:
        """Return the end of the quotation around `place`; None if `place` is not quoted."""
        number = bisect_left(self._places, place)
        return self._places[number] if (len(self._places) - number) % 2 else None


_DOUBLE = re.compile(r"\"|\\.")
# Inside a word, it is an apostrophe.
_SINGLE = re.compile(r"(?<!\w)'|'(?!\w)|\\.")


class QuotedText:
    """Decides whether the marker at the position of `buffer` is quoted.

    The reader calls `passed` with all text before the marker, and `clear` when a block or a thought ends.
    """

    def __init__(self, buffer: TextBuffer) -> None:
        self._buffer = buffer
        self._markdown = MarkdownTracker()
        self._double_marks = StraightMarks()
        self._single_marks = StraightMarks(single=True)
        self._sought: dict[str, int] = {}
        """For each closing mark, the position up to which the text does not contain it."""
        self._end = 0
        """The end of the last quotation around a marker, if it is known."""
        self._fence_end = 0
        """The position behind the last closing fence."""
        self.verbatim_to = 0
        """Text is passed on unchanged up to this position, and then up to `_verbatim_until` or the end of the line."""
        self._verbatim_until = ""
        self.passed = self._markdown.feed
        """Adds text. It is an attribute and not a method, because it is called for each token of a model."""

    def clear(self) -> None:
        """Forget the text so far, because a block or a thought has ended here."""
        self._markdown.restart()
        self._verbatim_until = ""

    def leave_fence(self) -> None:
        """Forget the text so far, because a fence has ended here. Its closing marks open no quotation."""
        self._markdown.restart()
        self._fence_end = self._buffer.position

    def is_quoted(self, *, in_code: bool) -> Reading[bool]:
        """Return whether the marker is inside a quotation that is closed later, or inside a program's string.

        `in_code` means that the marker is common in programs, so that a string around it does not quote it.
        """
        if (yield from self._is_in_closed_quotation()):
            return True
        return not in_code and (yield from self._is_in_string())

    def closing_mark(self) -> str:
        """Return the mark that ends the quotation around the marker, without reading ahead; "" if there is none.

        The marker is quoted in a quoted line, whose end is the mark, right behind an opening mark, and in a quotation
        that such a mark has begun.
        """
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        if buffer.position > buffer.boundary and (before == "\\" or self._is_in_quoted_line()):
            return "\n"
        if self.is_right_behind_opening_mark():
            return PAIRS.get(before, before)
        return self._verbatim_until

    def is_right_behind_opening_mark(self) -> bool:
        """Return whether a quotation mark that may open a quotation is right before this position."""
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        is_mark = buffer.position > max(buffer.boundary, self._fence_end) and bool(before) and before in QUOTES
        return is_mark and not ends_quotation(buffer.line_before())

    def is_in_indented_code(self) -> bool:
        """Return whether the marker begins a line of indented code that follows other text."""
        buffer = self._buffer
        if buffer.before(buffer.position, 1) not in (" ", "\t") or buffer.line_before().strip():
            return False
        start = max(buffer.base, buffer.position - LOOK_BACK_CHARS, buffer.boundary)
        before = buffer.text[start - buffer.base : buffer.index]
        # The beginning of a long block is too far back to be seen. Then all visible lines are indented.
        is_later = len(before) == LOOK_BACK_CHARS and _LATER_IN_INDENTED_CODE.fullmatch(before)
        return bool(is_later) or _INDENTED_CODE.search(before) is not None

    def continuation(self, *, announced: bool) -> "regex.Pattern[str] | None":
        """Return the pattern of text which, behind a block, shows that the block is a part of a sentence.

        Return None if the text before the block is not an unfinished sentence. Text behind another block in the same
        line is not one. With `announced`, if the text before the block announces an example, any words behind it match.
        """
        buffer = self._buffer
        if announced and is_introduced_as_example(buffer):
            return _WORDS_FOLLOW
        line = buffer.line_before()
        if buffer.boundary and buffer.boundary >= buffer.position - len(line):
            return None
        words = line.rstrip(" \t")
        if words.endswith(_BEFORE_EXAMPLE):
            return _PUNCTUATION_FOLLOWS
        is_sentence = words != line and words.removesuffix(",")[-1:].isalpha()
        return _SENTENCE_GOES_ON if is_sentence else None

    def quote_up_to(self, end: int) -> None:
        """Treat the text from here to `end` as quoted."""
        self._end = max(self._end, end)
        self.verbatim_to = max(self.verbatim_to, end)

    def is_known_to_be_quoted(self) -> bool:
        """Return whether this position is inside a quotation whose end is known."""
        return self._buffer.position < self._end

    def is_thought_closer_quoted(self, chars: int) -> Reading[bool]:
        """Return whether the closer of a thought here, which has `chars` characters, is in quotation marks."""
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        if not before or before not in QUOTES or buffer.position <= buffer.boundary:
            return False
        while not buffer.final and buffer.position + chars >= buffer.end:
            yield
        behind = buffer.index + chars
        return is_closer_quoted(buffer.line_before(), buffer.text[behind : behind + 1])

    def take_verbatim_to_end(self) -> None:
        """Pass text on unchanged up to the end of the quotation around this position."""
        self.verbatim_to = max(self._buffer.position, self._end)
        self._verbatim_until = ""

    def take_verbatim_until(self, mark: str) -> None:
        """Pass text on unchanged up to the closing `mark` of the quotation, or up to the end of the line."""
        self.verbatim_to = self._buffer.position
        self._verbatim_until = mark

    def find_verbatim_end(self, start: int) -> int:
        """Return the end of the text from `start` on that is passed on unchanged; `start` if there is none."""
        buffer = self._buffer
        if start < self.verbatim_to:
            return min(self.verbatim_to, buffer.position)
        if not self._verbatim_until:
            return start
        closing_mark = re.search(f"[{re.escape(self._verbatim_until)}\n]", buffer.cut(start, buffer.position))
        if closing_mark is None:
            return buffer.position
        self._verbatim_until = ""
        return start + closing_mark.start()

    def _is_in_quoted_line(self) -> bool:
        """Return whether the marker is in a line of a block quotation or a table, but not at its beginning."""
        # The first check is fast, and most fences begin a line.
        return not self._buffer.at_line_start() and self._markdown.is_in_quoted_line()

    def _is_in_closed_quotation(self) -> Reading[bool]:
        """Return whether the marker is inside a quotation that ends in its paragraph."""
        buffer = self._buffer
        if self.is_known_to_be_quoted():
            return True
        for closer in self._markdown.open_quotations():
            if closer == '"' and buffer.before(buffer.position, 1) != '"':
                yield from self._read_marks(self._double_marks)
                end = self._find_closing_mark_in_line(self._double_marks)
            else:
                end = yield from self._find_closing_mark(closer)
            if end is not None:
                self._end = end
                return True
            self._markdown.forget_quotation(closer)
        return False

    def _find_closing_mark(self, closer: str) -> Reading[int | None]:
        """Return the position of the closing mark; None if the paragraph ends before it."""
        buffer = self._buffer
        pattern = closing_pattern(closer)
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

    def _find_closing_mark_in_line(self, marks: StraightMarks) -> int | None:
        """Return the position of the closing straight mark; None if the line has none."""
        buffer = self._buffer
        end = marks.closer(buffer.position)
        # The closing mark may be in the part of the line that was cut off.
        return buffer.end if end is None and buffer.is_cut and marks.end == buffer.end else end

    def _is_in_string(self) -> Reading[bool]:
        """Return whether the marker is inside a program's string that ends in its line."""
        if not self._markdown.is_in_string():
            return False
        yield from self._read_marks(self._single_marks)
        end = self._find_closing_mark_in_line(self._single_marks)
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
    """Return whether the mark at the end of `line` closes a quotation, or is an apostrophe or an inch sign.

    Right behind a word, no quotation begins. Elsewhere, a mark closes a quotation if the marks of the line are pairs.
    For back-ticks, only runs of the same length are counted.
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
    # Inside a word, it is an apostrophe.
    "'": re.compile(r"(?<!\w)'|'(?!\w)"),
    "`": re.compile("`+"),
}
"""The marks with equal opening and closing forms."""
_OPENING = frozenset("([{:=")
_STRING_PREFIX = re.compile(r"(?<!\w)[fbru]{1,2}\Z", re.IGNORECASE)

_BEHIND_MARKER = r"(?<=[>\]])\"(?!\w)"


@cache
def closing_pattern(closer: str) -> "regex.Pattern[str]":
    """Return a pattern that matches `closer`, as the group `closer`, or the end of the paragraph.

    For a quotation that begins with a marker, a straight quotation mark matches only right behind a marker.
    """
    if closer in CLOSERS_OVER_LINES:
        return regex.compile(f"(?P<closer>{closer})", regex.IGNORECASE)
    alone = f"(?<!`)`{{{len(closer)}}}(?!`)" if closer[0] == "`" else _BEHIND_MARKER if closer == '"' else closer
    return regex.compile(rf"(?P<closer>{alone})|{_PARAGRAPH_END}", regex.IGNORECASE)


_SENTENCE_GOES_ON = regex.compile(r"[ \t]{0,9}+[a-z,;.?!)]")
_PUNCTUATION_FOLLOWS = regex.compile(r"[,;.?!)，；。？！）]")
_WORDS_FOLLOW = regex.compile(r"\s{0,99}+[\w,;.?!)，；。？！）]")
_BEFORE_EXAMPLE = ("(", ":", "=", "（", "：")

_NOUN = r"(?:examples?|beispiel\w*|exemples?|ejemplos?|esemp\w+)\b"
_EXAMPLE = re.compile(
    r"\b(?:for example|for instance|zum beispiel|par exemple|por ejemplo|(?:per|ad) esempio)\b"
    # Except in the first rule, the announcement is the last part of the sentence: "I don't use it, I look:" is none.
    # A title: "Example of a call:", "Another example:". "Looking for examples:" is none.
    rf"|\A\W*(?:(?!for\b|nach\b)\w+\s+){{0,2}}{_NOUN}"
    rf"|(?:\b(?:is|are|as|(?<!for )(?<!for the )following|ist|sind|est|es)|'s|è)\s+(?:[\w-]+\s+){{0,3}}{_NOUN}[^,;.]*\Z"
    r"|\be\.g\.?,?(?:\s+(?:for|like|with|by|as|so|this)\b[^,;.]{0,30})?\s*[:：]\Z"
    r"|(?<!\bit )looks? like(?:\s+(?:this|that|so|the)\b[^,;.]{0,30})?\s*[:：]\Z"
    r"|\b(?:(?:would|should|must|will|do) not|(?:would|should|must|wo|do)n['’]t|never)(?:\s+ever)?"
    r"\s+(?:write|output|send|call|run|use|do|print|emit|answer|say|make|issue|execute|invoke|type)\b[^,;.]{0,30}\Z"
    r"|例如|比如|举例|例えば|是[^，。]{0,9}例|\A\W*(?:示例|例)",
    re.IGNORECASE,
)


def is_introduced_as_example(buffer: TextBuffer) -> bool:
    """Return whether the last line before this position announces an example, or says what not to write."""
    return announces_example(buffer.before(buffer.position, LOOK_BACK_CHARS).rstrip().rpartition("\n")[2])


def announces_example(line: str) -> bool:
    """Return whether a line announces an example, or says what not to write."""
    line = line.rstrip("*_ \t\r")
    return line.endswith((":", "：")) and _EXAMPLE.search(line[-LOOK_BACK_CHARS:]) is not None


def is_closer_quoted(before: str, following: str) -> bool:
    """Return whether a closer between these texts is in quotation marks."""
    mark = before[-1:]
    if not mark or mark not in QUOTES or following != PAIRS.get(mark, mark):
        return False
    return not ends_quotation(before[before.rfind("\n") + 1 :])
