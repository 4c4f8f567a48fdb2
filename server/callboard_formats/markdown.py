"""Tracks the Markdown around the end of a text: code, quotations, lists, tables and HTML.

It follows https://spec.commonmark.org/0.31.2/ for fences, code spans, lazy continuation and HTML, and GitHub's rules
for tables, as far as this is possible without reading ahead. It has three users: the reader of answers asks whether a
marker is quoted, the cleaner asks whether a fragment is in code, and the rescuer asks whether a line can be a call that
the model makes itself.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from callboard_formats.quotation_marks import CODE_TAGS, COMMENT_END, PAIRS, QUOTES, LineQuotations

BEFORE_FENCE = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t][ \t>]*+)*+")
"""The part of a line that may precede a fence: indentation, list markers and block quotation markers."""
BEFORE_CLOSING_FENCE = re.compile(r"[ \t>]*")

MAX_UNREAD = 500
"""The number of pieces that are stored before they are read together."""
MAX_HEAD_CHARS = 128
"""The number of characters at the beginning of a line that decide what the line is."""
MAX_FENCE_CHARS = 100
"""The number of back-ticks or tildes of a fence that are compared."""

_BLANKS = " \t\r"
"""The characters that may be in a blank line. In Markdown, other white space is text."""
_TAGS_OVER_LINES = ("pre", "xmp", COMMENT_END)
_OTHER_TAGS = "script|style|textarea|blockquote|q|details|table|ul|ol"
# The pattern begins with a set of characters, because `re` quickly skips text without these characters.
_MARK = re.compile(
    rf"[`~<-](?:(?<=`)`*+|(?<=~)~*+|(?<=<)!--|(?<=-)->"
    rf"|(?<=<)(?P<slash>/?)(?P<tag>{CODE_TAGS}|{_OTHER_TAGS})(?=[\s/>]|\Z))",
    re.IGNORECASE,
)
_BEGUN_MARK = re.compile(r"(?:<(?:!-?|/?[a-z]{0,10})|--?|\\|\r)\Z", re.IGNORECASE)
"""The end of a text that the next piece may complete to a mark or to the line end `\\r\\n`."""
_LINE_END = re.compile(r"\r\n?|\n")
_CLOSING_LINE = re.compile(r"(?P<before>[ \t>]*+)(?P<run>`{3,}+|~{3,}+)[ \t\r]*+")
_QUOTED_LINE = re.compile(r" {0,3}[>|]")
_LITERAL_LINE = re.compile(r" {0,3}\t| {4}| {0,3}[|>]")
_SHOWN_LINE = re.compile(
    r"[ \t]*+(?:>|[-*+•◦▪‣](?:\s|\Z)|\d{1,9}[.)](?:\s|\Z)|\||\[[^\]\n]{1,100}\]:|<(?!/?think))|[ ]{2}|\t", re.IGNORECASE
)
# Possessive (`*+`), because otherwise `re` would try every division of a long row of blanks.
_TABLE_DELIMITERS = re.compile(r"[ \t]*+:?-++:?[ \t]*+\|[-:| \t\r]*+")
_BEFORE_QUOTED = frozenset((*QUOTES, *PAIRS.values(), "(", "["))


@dataclass(frozen=True, slots=True)
class _Fence:
    """The opening fence of fenced code.

    `before` is the text before it in its line: indentation, list markers or block quotation markers.
    """

    run: str
    before: str

    @property
    def is_indented_little(self) -> bool:
        return len(self.before) < 4 and not self.before.strip(" ")

    def is_surely_closed_after(self, before: str) -> bool:
        """Return whether CommonMark allows `before` in front of a closing fence. Models write any indentation there."""
        if self.is_indented_little:
            return len(before) < 4 and not before.strip(" ")
        if ">" in self.before:
            return ">" in before
        return before == " " * max(len(before), len(self.before))

    def contains(self, line: str) -> bool:
        """Return whether a line that is not blank certainly belongs to the list item or quotation of the fence."""
        if ">" in self.before:
            return line.lstrip(" ").startswith(">")
        return line.startswith(" " * max(1, len(self.before)))


@dataclass(slots=True)
class _OpenHtml:
    """The HTML elements and the comment that the text has opened and not closed. Tags in code spans do not count."""

    is_in_comment: bool = False
    _tags: Counter[str] = field(default_factory=Counter)
    in_span: list[tuple[str, bool]] = field(default_factory=list)
    """The tags behind the beginning of a code span in this line. They are text if the line closes the span."""

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


class MarkdownTracker:
    """Tracks the Markdown structure at the end of the text so far.

    `feed` accepts pieces cut anywhere and only stores them. They are read when a question is asked, because most tokens
    of a model need no question. Questions are about the position right behind the text. Except for
    `is_in_quoted_line`, they may be asked only if no back-tick or tilde follows.
    """

    def __init__(self) -> None:
        self._unread: list[str] = []
        self._reset()

    def restart(self) -> None:
        """Forget everything: the next text is read as the beginning of an answer."""
        self._unread.clear()
        if self._has_read:
            self._reset()

    def _reset(self) -> None:
        self._has_read = False
        self._head = ""
        self._last_char = ""
        """The last character of the line so far."""
        self._run = ""
        """The back-ticks or tildes at the end of the text. More may follow."""
        self._before_run = ""
        self._is_run_escaped = False
        self._last_visible = ""
        self._fence: _Fence | None = None
        self._opening: _Fence | None = None
        """The fence that this line opens, unless another back-tick follows in the line."""
        self._span = 0
        """The number of back-ticks that opened the current code span; 0 outside of code spans."""
        self._is_span_of_line = False
        self._quotations = LineQuotations()
        self._has_mark_over_lines = False
        self._html = _OpenHtml()
        self._is_shown_paragraph = False
        """The paragraph is part of a list, a quotation, a table or HTML."""
        self._is_html_paragraph = False
        """A line of the paragraph begins with a tag. An HTML block continues to the next blank line."""
        self._is_uncertain = False
        """Renderers may disagree about the end of a fence, so that all further text may be in code."""

    def feed(self, text: str) -> None:
        """Add text."""
        self._unread.append(text)
        if len(self._unread) > MAX_UNREAD:
            self._read()

    def feed_line(self, line: str) -> None:
        """Add a whole line without its line feed. This is faster than `feed`."""
        if self._unread or "\r" in line:
            self.feed(f"{line}\n")
            return
        self._has_read = True
        if line:
            self._read_in_line(line)
        self._end_line()

    # Questions.

    def is_at_line_start(self) -> bool:
        """Return whether the line is empty so far."""
        self._settle()
        return not self._head and not self._unread

    def is_behind_words(self) -> bool:
        """Return whether the line contains more than white space so far."""
        self._settle()
        return bool("".join([self._head, *self._unread]).strip())

    def is_literal(self) -> bool:
        """Return whether the position is in code, an indented line, a table or a block quotation."""
        self._settle()
        # Text behind a closing fence in the same line is not in code.
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
        """Return whether a line that begins here is certainly the model's own text, and not a quotation or an example.

        In doubt, return False, because a call that stays text does no harm.
        """
        self._settle()
        is_code = self._fence is not None or self._span > 0
        is_quoted = self._last_visible in _BEFORE_QUOTED
        return not (self._is_uncertain or is_code or is_quoted or self._is_shown_paragraph or self._html.is_open())

    # Reading.

    def _settle(self) -> None:
        """Read all stored text. A run of back-ticks is taken as complete, and a last carriage return as a line end."""
        self._read()
        if self._unread and self._unread[-1] == "\r":
            self._unread.clear()
            self._end_line()
        if self._run:
            self._end_run()

    def _read(self) -> None:
        if not self._unread:
            return
        self._has_read = True
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
            self._last_char = text[-1]
            self._last_visible = text.rstrip(_BLANKS)[-1:] or self._last_visible
        if len(self._head) < MAX_HEAD_CHARS:
            self._head = (self._head + text)[:MAX_HEAD_CHARS]

    def _read_marks(self, text: str) -> None:
        if self._run and text[0] != self._run[0]:
            self._end_run()
        for mark in _MARK.finditer(text):
            if mark[0][0] not in "`~":
                self._read_tag(mark)
                continue
            start, end = mark.span()
            if not self._run:
                self._before_run = (self._head + text[:start])[:MAX_HEAD_CHARS]
                self._is_run_escaped = (text[start - 1] if start else self._last_char) == "\\"
            self._run += mark[0]
            if end < len(text):
                self._end_run()

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
            # Models begin a fence behind other text. In CommonMark that is a code span, and a fence begins here.
            self._is_uncertain = True
            opens_fence = False
        if opens_fence:
            self._opening = _Fence(run, before)
        elif run[0] == "`":
            self._read_span_marks(len(run) - (1 if self._is_run_escaped and not self._span else 0))

    def _read_span_marks(self, length: int) -> None:
        """Open or close a code span at a run of `length` back-ticks."""
        if self._opening is not None and self._opening.run[0] == "`":
            # In CommonMark, a line with more back-ticks behind its first run is not a fence. It begins with a code
            # span.
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
        elif not line.strip(_BLANKS) and len(line) < MAX_HEAD_CHARS:
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
        if fence.before and line.strip(_BLANKS) and not fence.contains(line):
            # A list item or a quotation may have ended here, and its fence with it.
            self._is_uncertain = True
        if closing := self._closing_fence(fence):
            self._fence = None
            self._is_uncertain = self._is_uncertain or not fence.is_surely_closed_after(closing["before"])

    def _begin_fence(self, fence: _Fence) -> None:
        # In HTML the marks are text. In the head of a table they may be text.
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
