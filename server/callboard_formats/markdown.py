"""Tracks the Markdown around the end of a text: code, quotations, lists, tables and HTML.

Follows https://spec.commonmark.org/0.31.2/ for fences, code spans, lazy continuation and HTML, and GitHub's tables, as
far as a text shows them that is read forward once. It is the only place that keeps this state: the reader of answers
asks whether a marker is quoted, the cleaner whether a fragment stands in code, and the rescuer whether a line can be a
call that the model makes itself.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

PAIRS = {
    "“": "”", "‘": "’", "«": "»", "»": "«", "„": "“", "‚": "‘", "‹": "›", "›": "‹", "「": "」", "『": "』", "《": "》",
}  # fmt: skip
"""Each opening quotation mark with the mark that closes it. French writes `«…»`, German `»…«` and `„…“`."""
QUOTES = "`\"'" + "".join(PAIRS)
"""The characters that can open a quotation: a marker right behind one is quoted, not used."""
BEFORE_FENCE = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t][ \t>]*+)*+")
"""The part of a line that may precede a fence: indentation, list markers and block quotation markers."""
BEFORE_CLOSING_FENCE = re.compile(r"[ \t>]*")
COMMENT_END = "-->"
CLOSERS_OVER_LINES = ("</pre>", "</xmp>", COMMENT_END)
"""The closers of quotations that continue over lines and paragraphs. All others end with their line."""
_TAGS_OVER_LINES = ("pre", "xmp", COMMENT_END)

MAX_UNREAD = 500
"""The number of pieces that are stored before they are read together."""
MAX_HEAD_CHARS = 128
"""The number of characters at the beginning of a line that decide what the line is."""

MAX_FENCE_CHARS = 100
"""The number of marks of a fence that count."""

_BLANKS = " \t\r"
"""The white space of a blank line. Markdown knows no other."""
_TYPOGRAPHIC = "".join(dict.fromkeys([*PAIRS, *PAIRS.values()]))
_CODE_TAGS = "code|pre|kbd|samp|tt|xmp"
_OTHER_TAGS = "script|style|textarea|blockquote|q|details|table|ul|ol"
# Both begin with a set of characters: `re` passes quickly over text without those.
_MARK = re.compile(
    rf"[`~<-](?:(?<=`)`*+|(?<=~)~*+|(?<=<)!--|(?<=-)->"
    rf"|(?<=<)(?P<slash>/?)(?P<tag>{_CODE_TAGS}|{_OTHER_TAGS})(?=[\s/>]|\Z))",
    re.IGNORECASE,
)
_QUOTATION_MARK = re.compile(
    rf"[`<\-\\\"'{_TYPOGRAPHIC}](?:(?<=`)`*+|(?<=<)!--|(?<=-)->|(?<=\\)[\\']|(?<=[\"'{_TYPOGRAPHIC}])"
    rf"|(?<=<)(?P<slash>/?)(?P<tag>{_CODE_TAGS})(?=[\s/>]|\Z))",
    re.IGNORECASE,
)
_BEGUN_MARK = re.compile(r"(?:<(?:!-?|/?[a-z]{0,10})|--?|\\|\r)\Z", re.IGNORECASE)
"""The end of a text that the next piece may complete to a mark, or to a line end of two characters."""
_LINE_END = re.compile(r"\r\n?|\n")
_CLOSING_LINE = re.compile(r"(?P<before>[ \t>]*+)(?P<run>`{3,}+|~{3,}+)[ \t\r]*+")
_BEFORE_STRING = re.compile(r"(?:[=(\[{,:+]|\breturn)[ \t]{0,9}[fbru]{0,2}\Z", re.IGNORECASE)
_BEFORE_OPENING = frozenset(" \t\n([{:,=>")
_TAIL_CHARS = 20

_QUOTED_LINE = re.compile(r" {0,3}[>|]")
_LITERAL_LINE = re.compile(r" {0,3}\t| {4}| {0,3}[|>]")
_SHOWN_LINE = re.compile(
    r"[ \t]*+(?:>|[-*+•◦▪‣](?:\s|\Z)|\d{1,9}[.)](?:\s|\Z)|\||\[[^\]\n]{1,100}\]:|<(?!/?think))|[ ]{2}|\t", re.IGNORECASE
)
# Possessive (`*+`), because a long row of blanks would be divided in every possible way.
_TABLE_DELIMITERS = re.compile(r"[ \t]*+:?-++:?[ \t]*+\|[-:| \t\r]*+")
_BEFORE_QUOTED = frozenset((*QUOTES, *PAIRS.values(), "(", "["))


@dataclass(frozen=True, slots=True)
class _Fence:
    """A fence of fenced code. `before` is the text that precedes it in its line: indentation or a container."""

    run: str
    before: str

    @property
    def is_indented_little(self) -> bool:
        return len(self.before) < 4 and not self.before.strip(" ")

    def is_surely_closed_after(self, before: str) -> bool:
        """Return whether CommonMark lets a closing line begin with `before`. Models indent it as they like."""
        if self.is_indented_little:
            return len(before) < 4 and not before.strip(" ")
        if ">" in self.before:
            return ">" in before
        return before == " " * max(len(before), len(self.before))

    def contains(self, line: str) -> bool:
        """Return whether a line that is not blank surely belongs to the list item or quotation of the fence."""
        if ">" in self.before:
            return line.lstrip(" ").startswith(">")
        return line.startswith(" " * max(1, len(self.before)))


@dataclass(slots=True)
class _OpenHtml:
    """The HTML elements and the comment that the text has opened and not closed, except in complete code spans."""

    is_in_comment: bool = False
    _tags: Counter[str] = field(default_factory=Counter)
    in_span: list[tuple[str, bool]] = field(default_factory=list)
    """The tags behind the beginning of a code span of this line; they are text if the line closes the span."""

    def is_open(self) -> bool:
        return self.is_in_comment or any(self._tags.values())

    def add(self, name: str, *, closes: bool, in_span: bool) -> None:
        if in_span:
            self.in_span.append((name, closes))
        elif name != COMMENT_END:
            self._tags[name] = max(0, self._tags[name] + (-1 if closes else 1))
        elif closes == self.is_in_comment:
            self.is_in_comment = not closes

    def drop_tags_in_span(self) -> None:
        self.in_span.clear()

    def take_tags_in_span(self) -> None:
        for name, closes in self.in_span:
            self.add(name, closes=closes, in_span=False)
        self.in_span.clear()


@dataclass(slots=True)
class _LineQuotations:
    """The quotations that the line has opened and not closed. The line is read only when a question needs it."""

    open: list[str] = field(default_factory=list)
    """The closer of each quotation, the outermost first."""
    is_in_string: bool = False
    unread: list[str] = field(default_factory=list)
    tail: str = "\n"

    def end_line(self, *, has_mark_over_lines: bool) -> None:
        """Keep only quotations that continue over lines; read the line before if it may have opened or closed one."""
        if has_mark_over_lines:
            self.read()
        if self.open:
            self.open = [closer for closer in self.open if closer in CLOSERS_OVER_LINES]
        self.is_in_string = False
        self.unread.clear()
        self.tail = "\n"

    def read(self) -> None:
        """Read what has come of the line, which does not end in the middle of a mark."""
        text = "".join(self.unread)
        self.unread.clear()
        for mark in _QUOTATION_MARK.finditer(text):
            before = text[max(0, mark.start() - _TAIL_CHARS) : mark.start()]
            self._read_mark(mark, before if len(before) == _TAIL_CHARS else self.tail + before)
        self.tail = (self.tail + text)[-_TAIL_CHARS:]

    def _read_mark(self, mark: re.Match[str], before: str) -> None:
        """Open or close a quotation; `before` are the characters before the mark."""
        text = mark[0]
        if text == '"':
            self._read_straight_mark(before[-1])
        elif text == "'":
            # Elsewhere it is an apostrophe.
            self.is_in_string = not self.is_in_string and _BEFORE_STRING.search(before) is not None
        elif text[0] == "`":
            self._toggle(text, opens=True, closes=True)
        elif text[0] == "<" or text == COMMENT_END:
            closes = bool(mark["slash"]) or text == COMMENT_END
            closer = f"</{mark['tag'].lower()}>" if mark["tag"] else COMMENT_END
            self._toggle(closer, opens=not closes, closes=closes)
        elif text in self.open:
            self._close(text)
        elif text in PAIRS:
            self._toggle(PAIRS[text], opens=True, closes=False)

    def _read_straight_mark(self, before: str) -> None:
        # Behind a word it is the sign of inches, or closes a quotation of another line.
        self._toggle('"', opens=before in _BEFORE_OPENING, closes=before != "\\")

    def _toggle(self, closer: str, *, opens: bool, closes: bool) -> None:
        if closer not in self.open:
            if opens:
                self.open.append(closer)
        elif closes:
            self._close(closer)

    def _close(self, closer: str) -> None:
        del self.open[self.open.index(closer) :]


class MarkdownTracker:
    """Tracks where in Markdown the text ends that was fed so far.

    `feed` accepts pieces cut anywhere and only stores them, because most tokens of a model raise no question. Questions
    are about the place right behind the text. All but `is_in_quoted_line` must be asked only if no back-tick or tilde
    follows there.
    """

    def __init__(self) -> None:
        self._unread: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Forget everything: the next text is read as the beginning of an answer."""
        self._unread.clear()
        self._head = ""
        self._last_char = ""
        """The last character of the line so far."""
        self._run = ""
        """The back-ticks or tildes that the text ends in; more may follow."""
        self._before_run = ""
        self._is_run_escaped = False
        self._last_visible = ""
        self._fence: _Fence | None = None
        self._opening: _Fence | None = None
        """The fence that this line opens, unless another back-tick follows in the line."""
        self._span = 0
        """The number of back-ticks that opened a code span of this paragraph; 0 outside of code spans."""
        self._is_span_of_line = False
        self._quotations = _LineQuotations()
        self._has_mark_over_lines = False
        self._html = _OpenHtml()
        self._is_shown_paragraph = False
        """The paragraph has become part of a list, a quotation, a table or HTML."""
        self._is_html_paragraph = False
        """A line of the paragraph begins with a tag. An HTML block continues to the next blank line."""
        self._is_uncertain = False
        """Renderers may disagree about the end of a fence, so nothing from here on is surely outside of code."""

    def feed(self, text: str) -> None:
        """Continue behind this text."""
        self._unread.append(text)
        if len(self._unread) > MAX_UNREAD:
            self._read()

    # Questions.

    def is_at_line_start(self) -> bool:
        """Return whether no character precedes this place in its line."""
        self._settle()
        return not self._head and not self._unread

    def is_behind_words(self) -> bool:
        """Return whether more than white space precedes this place in its line."""
        self._settle()
        return bool("".join([self._head, *self._unread]).strip())

    def is_literal(self) -> bool:
        """Return whether this place is in code, or in an indented line, a table or a block quotation."""
        self._settle()
        # Behind the closing fence its line is no code any more.
        is_fenced = self._fence is not None and (bool(self._unread) or self._closing_fence(self._fence) is None)
        is_code = is_fenced or self._opening is not None or self._span > 0
        return is_code or _LITERAL_LINE.match(self._head) is not None

    def is_in_quoted_line(self) -> bool:
        """Return whether the line is part of a block quotation or a table."""
        self._read()
        return _QUOTED_LINE.match(self._head) is not None

    def is_in_string(self) -> bool:
        """Return whether the line has opened, and not closed, a program's string in single quotation marks."""
        self._settle()
        self._quotations.read()
        return self._quotations.is_in_string

    def open_quotations(self) -> tuple[str, ...]:
        """Return the closers of the quotations that are open in this line, the outermost first."""
        self._settle()
        self._quotations.read()
        return tuple(self._quotations.open)

    def forget_quotation(self, closer: str) -> None:
        """Treat the opening mark as plain text, because its paragraph ends without `closer`."""
        self._quotations.open.remove(closer)

    def may_begin_call(self) -> bool:
        """Return whether a line that begins here at the margin is surely the model's own words, and nothing it shows.

        In doubt the answer is False: a call that stays text does no harm.
        """
        self._settle()
        is_code = self._fence is not None or self._span > 0
        is_quoted = self._last_visible in _BEFORE_QUOTED
        return not (self._is_uncertain or is_code or is_quoted or self._is_shown_paragraph or self._html.is_open())

    # Reading.

    def _settle(self) -> None:
        """Read all that was fed. A run of back-ticks is complete, and a last carriage return is a line end."""
        self._read()
        if self._unread and self._unread[-1] == "\r":
            self._unread.clear()
            self._end_line()
        if self._run:
            self._end_run()

    def _read(self) -> None:
        text = "".join(self._unread)
        self._unread.clear()
        if not text.endswith("\n") and (begun := _BEGUN_MARK.search(text)):
            self._unread.append(begun[0])
            text = text[: begun.start()]
        *lines, rest = _LINE_END.split(text) if "\r" in text else text.split("\n")
        for line in lines:
            if line:
                self._read_in_line(line)
            self._end_line()
        if rest:
            self._read_in_line(rest)

    def _read_in_line(self, text: str) -> None:
        if self._fence is None:
            self._read_marks(text)
            self._quotations.unread.append(text)
        if len(self._head) < MAX_HEAD_CHARS:
            self._head = (self._head + text)[:MAX_HEAD_CHARS]

    def _read_marks(self, text: str) -> None:
        if self._run and text[0] != self._run[0]:
            self._end_run()
        for mark in _MARK.finditer(text):
            start, end = mark.span()
            if mark[0][0] in "`~":
                if not self._run:
                    self._before_run = (self._head + text[:start])[:MAX_HEAD_CHARS]
                    self._is_run_escaped = (text[start - 1] if start else self._last_char) == "\\"
                self._run += mark[0]
                if end < len(text):
                    self._end_run()
            else:
                self._read_tag(mark)
        self._last_char = text[-1]
        visible = text.rstrip(_BLANKS)
        self._last_visible = visible[-1] if visible else self._last_visible

    def _read_tag(self, mark: re.Match[str]) -> None:
        name = (mark["tag"] or COMMENT_END).lower()
        closes = bool(mark["slash"]) or mark[0] == COMMENT_END
        may_be_code = self._opening is not None or (self._span > 0 and self._is_span_of_line)
        self._html.add(name, closes=closes, in_span=may_be_code)
        self._has_mark_over_lines = self._has_mark_over_lines or name in _TAGS_OVER_LINES

    def _end_run(self) -> None:
        run, before = self._run, self._before_run
        self._run = ""
        opens_fence = self._opening is None and len(run) >= 3 and BEFORE_FENCE.fullmatch(before) is not None
        if opens_fence and run[0] == "`" and len(run) == self._span:
            # Models begin a fence behind words. CommonMark reads a code span there, and a fence that begins here.
            self._is_uncertain = True
            opens_fence = False
        if opens_fence:
            self._opening = _Fence(run, before)
        elif run[0] == "`":
            self._read_span_marks(len(run) - (1 if self._is_run_escaped and not self._span else 0))

    def _read_span_marks(self, length: int) -> None:
        """Open or close a code span at so many back-ticks."""
        if self._opening is not None and self._opening.run[0] == "`":
            # A line with back-ticks behind the first ones is no fence, by CommonMark, but begins with a code span.
            if self._span == 0:
                self._span = len(self._opening.run)
                self._is_span_of_line = True
            self._opening = None
        if self._span == length:
            self._span = 0
            self._html.drop_tags_in_span()
        elif self._span == 0:
            self._span = length
            self._is_span_of_line = True

    def _closing_fence(self, fence: _Fence) -> re.Match[str] | None:
        """Return the match of the line so far if it closes `fence`."""
        marks = fence.run[:MAX_FENCE_CHARS]
        if marks not in self._head or len(self._head) == MAX_HEAD_CHARS:
            return None
        closing = _CLOSING_LINE.fullmatch(self._head)
        return closing if closing and closing["run"].startswith(marks) else None

    def _end_line(self) -> None:
        if self._run:
            self._end_run()
        line = self._head
        if self._fence is not None:
            self._end_line_in_fence(self._fence, line)
        elif _is_blank(line):
            self._is_shown_paragraph = self._is_html_paragraph = False
            self._span = 0
        elif self._opening is not None:
            self._begin_fence(self._opening)
        else:
            self._end_line_of_paragraph(line)
        if self._html.in_span:
            self._html.take_tags_in_span()
        self._quotations.end_line(has_mark_over_lines=self._has_mark_over_lines)
        self._is_span_of_line = self._has_mark_over_lines = False
        self._opening = None
        self._head = self._last_char = ""

    def _end_line_in_fence(self, fence: _Fence, line: str) -> None:
        if fence.before and not _is_blank(line) and not fence.contains(line):
            # A list item or a quotation may have ended here, and its fence with it.
            self._is_uncertain = True
        if closing := self._closing_fence(fence):
            self._fence = None
            self._is_uncertain = self._is_uncertain or not fence.is_surely_closed_after(closing["before"])

    def _begin_fence(self, fence: _Fence) -> None:
        # In HTML the marks are text, and in the head of a table they may be.
        is_in_other = self._is_html_paragraph or self._html.is_open() or "|" in self._head
        # Deeply indented marks are code, text, or a fence in a list.
        is_deep = not fence.before.strip() and not fence.is_indented_little
        self._is_uncertain = self._is_uncertain or is_in_other or is_deep
        self._fence = fence
        self._span = 0
        self._html.drop_tags_in_span()
        if not fence.before:
            self._is_shown_paragraph = False

    def _end_line_of_paragraph(self, line: str) -> None:
        if shown := _SHOWN_LINE.match(line):
            self._is_shown_paragraph = True
            self._is_html_paragraph = self._is_html_paragraph or shown[0].endswith("<")
        elif "|" in line and _TABLE_DELIMITERS.fullmatch(line):
            self._is_shown_paragraph = True


def _is_blank(head: str) -> bool:
    return len(head) < MAX_HEAD_CHARS and not head.strip(_BLANKS)
