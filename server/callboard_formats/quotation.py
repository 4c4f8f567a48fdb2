"""What stands in quotation in running text: code spans, and text between paired quotation marks.

A code span goes from a run of back-ticks to the next run of as many, says CommonMark, within its paragraph. One that
is never closed opens nothing.
"""

import re
from dataclasses import dataclass, field

import regex

PAIRS = {"“": "”", "«": "»", "„": "“", "‹": "›", "「": "」"}
_MARK = re.compile(r"`+|[\n" + "".join(dict.fromkeys([*PAIRS, *PAIRS.values()])) + "]")
_PARAGRAPH_END = r"\n[ \t\r]{0,99}+\n"


@dataclass(slots=True)
class Quotations:
    """The quotations that were opened in a line of text and not closed yet, read in pieces."""

    _open: list[str] = field(default_factory=list)
    _run: str = ""
    """The back-ticks that the text so far ends in: there may be more of them."""

    def clear(self) -> None:
        """Begin anew, behind something that is no text."""
        self._open.clear()
        self._run = ""

    def read(self, text: str) -> None:
        """Read on in the text."""
        if self._run and not text.startswith("`"):
            self._end_run()
        for mark in _MARK.finditer(text):
            if mark[0][0] == "`":
                self._run += mark[0]
                if mark.end() < len(text):
                    self._end_run()
            elif mark[0] == "\n":
                self._open.clear()
            elif mark[0] in self._open:
                self._close(mark[0])
            elif mark[0] in PAIRS and PAIRS[mark[0]] not in self._open:
                self._open.append(PAIRS[mark[0]])

    def closers(self) -> tuple[str, ...]:
        """Return what would close each of the quotations, the outermost first; the text has no more back-ticks here."""
        if self._run:
            self._end_run()
        return tuple(self._open)

    def forget(self, closer: str) -> None:
        """Take the quotation for none: its paragraph ends without `closer`."""
        self._open.remove(closer)

    def _end_run(self) -> None:
        run, self._run = self._run, ""
        if run in self._open:
            self._close(run)
        else:
            self._open.append(run)

    def _close(self, closer: str) -> None:
        del self._open[self._open.index(closer) :]


def end_of(closer: str) -> "regex.Pattern[str]":
    """Return the pattern of `closer`, as the group `closer`, or of the end of the paragraph before it."""
    alone = f"(?<!`)`{{{len(closer)}}}(?!`)" if closer[0] == "`" else closer
    return regex.compile(rf"(?P<closer>{alone})|{_PARAGRAPH_END}")
