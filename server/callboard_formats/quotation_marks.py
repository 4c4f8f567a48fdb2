"""Tracks the quotations that a line opens with back-ticks, quotation marks, HTML elements for code, or comments."""

import re
from dataclasses import dataclass, field

PAIRS = {
    "“": "”", "‘": "’", "«": "»", "»": "«", "„": "“", "‚": "‘", "‹": "›", "›": "‹", "「": "」", "『": "』", "《": "》",
}  # fmt: skip
"""Each opening quotation mark with its closing mark. French uses `«…»`, German `»…«` and `„…“`."""
QUOTES = "`\"'" + "".join(PAIRS)
"""The characters that can open a quotation. A marker right behind one of them is quoted."""
COMMENT_END = "-->"
CLOSERS_OVER_LINES = ("</pre>", "</xmp>", COMMENT_END)
"""The closers of quotations that may continue over lines and paragraphs. Other quotations end with their line."""
CODE_TAGS = "code|pre|kbd|samp|tt|xmp"

_TYPOGRAPHIC = "".join(dict.fromkeys([*PAIRS, *PAIRS.values()]))
# The pattern begins with a set of characters, because `re` quickly skips text without these characters.
_QUOTATION_MARK = re.compile(
    rf"[`<\-\\\"'{_TYPOGRAPHIC}](?:(?<=`)`*+|(?<=<)!--|(?<=-)->|(?<=\\)[\\']|(?<=[\"'{_TYPOGRAPHIC}])"
    rf"|(?<=<)(?P<slash>/?)(?P<tag>{CODE_TAGS})(?=[\s/>]|\Z))",
    re.IGNORECASE,
)
_BEFORE_STRING = re.compile(r"(?:[=(\[{,:+]|\breturn)[ \t]{0,9}[fbru]{0,2}\Z", re.IGNORECASE)
_BEFORE_OPENING = frozenset(" \t\n([{:,=>")
_TAIL_CHARS = 20


@dataclass(slots=True)
class LineQuotations:
    """The open quotations of a line. The line is read only if a caller needs them."""

    open: list[str] = field(default_factory=list)
    """The closer of each quotation, the outermost first."""
    is_in_string: bool = False
    unread: list[str] = field(default_factory=list)
    was_read: bool = False
    """A part of the line was read."""
    tail: str = "\n"

    def end_line(self, *, has_mark_over_lines: bool) -> None:
        """Keep only quotations that continue over lines. The line is read first if it may have opened or closed one."""
        if has_mark_over_lines:
            self.read()
        self.unread.clear()
        if self.was_read:
            self.open = [closer for closer in self.open if closer in CLOSERS_OVER_LINES]
            self.is_in_string = self.was_read = False
            self.tail = "\n"

    def read(self) -> None:
        """Read the line so far, which does not end in the middle of a mark."""
        self.was_read = True
        text = "".join(self.unread)
        self.unread.clear()
        for mark in _QUOTATION_MARK.finditer(text):
            before = text[max(0, mark.start() - _TAIL_CHARS) : mark.start()]
            self._read_mark(mark, before if len(before) == _TAIL_CHARS else self.tail + before)
        self.tail = (self.tail + text)[-_TAIL_CHARS:]

    def _read_mark(self, mark: re.Match[str], before: str) -> None:
        """Open or close a quotation. `before` has the characters before the mark."""
        text = mark[0]
        if text == '"':
            self._read_straight_mark(before[-1])
        elif text == "'":
            # At other positions, it is an apostrophe.
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
        # Behind a word it is an inch sign, or closes a quotation of another line.
        self._toggle('"', opens=before in _BEFORE_OPENING, closes=before != "\\")

    def _toggle(self, closer: str, *, opens: bool, closes: bool) -> None:
        if closer not in self.open:
            if opens:
                self.open.append(closer)
        elif closes:
            self._close(closer)

    def _close(self, closer: str) -> None:
        del self.open[self.open.index(closer) :]
