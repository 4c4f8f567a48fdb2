"""The cleaner of answers for the user: no special tokens, no scaffolding, no fragments of a protocol.

Pure: the same text gives the same result, whole or cut anywhere. What is held back is little:
the possible beginning of a marker, or an end that more may follow. Everything else passes to the
letter; in code, in indented lines, in tables and right beside a quotation mark the markers
themselves pass too, for there they are spoken of, except the tokens that the answer ends with.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from callboard_formats.markers import MESSAGE_ENDS, Marker, markers
from callboard_formats.quotation import BEFORE_CLOSING_FENCE, BEFORE_FENCE, PAIRS
from callboard_formats.syntax import END_OF_TURN, END_TOKENS
from callboard_formats.tape import Reading, Tape

MAX_PASSED = 500
"""The pieces that are kept before they are looked at together."""

MAX_LINE_CHARS = 64
"""The characters at the beginning of a line that count; of a line no more is looked at."""

_TOKENS = re.compile(r"\n|`+|~+|[^\n`~]+")
_KEPT_LINE = re.compile(r" {0,3}\t| {4}| {0,3}[|>]")


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of so many back-ticks or tildes, and nothing else."""

    character: str
    length: int


class Place:
    """The place right after the text that was `passed`."""

    def __init__(self) -> None:
        self._passed: list[str] = []
        self._line = ""
        self._last = ""
        self._fence: _Run | None = None
        self._opening: _Run | None = None
        """A line that opens fenced code, unless a back-tick follows in it."""
        self._closing = False
        self._span = 0
        """The number of back-ticks that opened a code span."""
        self._run: _Run | None = None
        """Back-ticks or tildes right before this place; more may come."""

    def passed(self, text: str) -> None:
        """Move on by `text`; it may be cut anywhere."""
        # Looked at when somebody asks: few do.
        self._passed.append(text)
        if len(self._passed) > MAX_PASSED:
            self._look()

    def _look(self) -> None:
        text = "".join(self._passed)
        self._passed.clear()
        for token in _TOKENS.finditer(text):
            first = token[0][0]
            if self._run is not None and first != self._run.character:
                self._end_run()
            if first == "\n":
                self._end_line()
            elif first in "`~":
                self._run = _Run(first, len(token[0]) + (self._run.length if self._run else 0))
            else:
                self._closing = self._closing and not token[0].strip()
                self._append(token[0])

    def at_line_start(self) -> bool:
        """Return whether nothing stands before this place in its line."""
        self._look()
        return not self._line and not self._run

    def is_behind_words(self) -> bool:
        """Return whether more than white space stands before this place in its line; to be asked as `is_kept`."""
        self._look()
        self._end_run()
        return bool(self._line.strip())

    def is_kept(self) -> bool:
        """Return whether what follows in this line is code, indented, a row of a table or a quotation.

        To be asked only where no back-tick or tilde comes next.
        """
        self._look()
        self._end_run()
        # Behind the fence's closing marks nothing of a line is code yet.
        in_fence = self._fence is not None and not self._closing
        in_code = in_fence or self._opening is not None or self._span > 0
        return in_code or _KEPT_LINE.match(self._line) is not None

    def _append(self, text: str) -> None:
        self._last = text[-1]
        if len(self._line) < MAX_LINE_CHARS:
            self._line = (self._line + text)[:MAX_LINE_CHARS]

    def _end_run(self) -> None:
        run = self._run
        self._run = None
        if run is None:
            return
        before = self._line
        escaped = self._last == "\\"
        self._append(run.character * min(run.length, MAX_LINE_CHARS))
        if self._fence is not None:
            self._closing = (
                run.character == self._fence.character
                and run.length >= self._fence.length
                and BEFORE_CLOSING_FENCE.fullmatch(before) is not None
            )
        elif self._opening is None and run.length >= 3 and run.length != self._span and BEFORE_FENCE.fullmatch(before):
            self._opening = run
            self._span = 0
        elif run.character == "`":
            self._code_span(run.length - (escaped and self._span == 0))

    def _code_span(self, length: int) -> None:
        if self._opening is not None and self._opening.character == "`":
            # Not a fence, says CommonMark: there is a back-tick in its line. So a span began there.
            self._span = self._opening.length
            self._opening = None
        if self._span == length:
            self._span = 0
        elif self._span == 0:
            self._span = length

    def _end_line(self) -> None:
        if self._closing:
            self._fence = None
        elif self._opening is not None:
            self._fence = self._opening
            self._span = 0
        elif len(self._line) < MAX_LINE_CHARS and not self._line.strip():
            self._span = 0
        self._line = ""
        self._last = ""
        self._opening = None
        self._closing = False


MAX_AFTER_END = 48
_ENDS = frozenset(text.lower() for text in (*END_TOKENS, *MESSAGE_ENDS))
_NOTHING_BUT_ENDS = regex.compile(
    rf"(?:\s|{END_OF_TURN.pattern}|{'|'.join(map(regex.escape, MESSAGE_ENDS))})*\Z", regex.IGNORECASE
)
_TYPE = re.compile(r"<\w+>")
_BEHIND_TYPES = frozenset(" (>),;&*:")
_OPENING_QUOTES = frozenset(('"', "'", *PAIRS))
_CLOSING_QUOTES = frozenset(('"', "'", *PAIRS.values()))


class Cleaner:
    """The cleaner of one answer: `feed` what comes, then `finish` once.

    `syntaxes` are the names of those in use, whose scaffolding may be left over, None for every one; `model` is the
    model's name, by which its quirks are looked up.
    """

    def __init__(self, syntaxes: Sequence[str] | None, model: str) -> None:
        self._markers, self._literals = markers(None if syntaxes is None else tuple(syntaxes), model)
        self._place = Place()
        self._tape = Tape()
        self._verbatim_to = 0
        """The place in the answer up to which text is shown as it stands."""
        self._has_begun = False
        self._is_answer = False
        self._out: list[str] = []
        self._reading = self._read()

    def answer_begins(self) -> None:
        """Note that the answer begins: the reader took the marker of the final answer out of the text itself."""
        self._is_answer = True

    def feed(self, text: str) -> str:
        """Return what can be shown now."""
        self._tape.feed(text)
        return self._read_on()

    def pass_on(self, text: str) -> str:
        """Return text that is shown as it stands, behind what was held back; what is left out may end in it."""
        self._tape.feed(text)
        self._verbatim_to = self._tape.end
        return self._read_on()

    def finish(self) -> str:
        """Return what was held back."""
        self._tape.final = True
        return self._read_on()

    def _read_on(self) -> str:
        next(self._reading, None)
        self._tape.said = self._tape.at
        out = "".join(self._out)
        self._out.clear()
        return out

    def _read(self) -> Reading[None]:
        """Show the text up to the next marker and leave that out, again and again."""
        tape = self._tape
        while True:
            self._show_to(self._verbatim_to)
            start, found = self._literals.find(tape.text, tape.at - tape.base, final=tape.final)
            self._show_to(tape.base + start)
            spellings = self._markers.get(found, {})
            marker = spellings.get(tape.text[start : start + len(found)]) or spellings.get("")
            is_used = self._is_used(marker, start + len(found)) if marker else False
            if marker and is_used:
                tape.at += len(found)
                self._show(marker.instead)
                self._is_answer = self._is_answer or marker.answers
                for skip in marker.then:
                    yield from skip(tape)
            elif found and is_used is not None:
                self._show_to(tape.at + 1)
            elif tape.final:
                return
            else:
                yield

    def _is_used(self, marker: Marker, end: int) -> bool | None:
        """Return whether `marker`, before `end` in the tape's text, is used and not spoken of.

        None if more text is needed.
        """
        tape = self._tape
        before = tape.before(tape.at, 1)
        following = tape.text[end : end + 1]
        # At the beginning of the answer no mark can close anything.
        is_quoted = before and (before in _OPENING_QUOTES or following in _CLOSING_QUOTES)
        if self._place.is_kept() or is_quoted:
            # The tokens that end an answer are never spoken of, except in a line of code.
            may_end = marker.text.lower() in _ENDS and self._place.is_behind_words()
            return self._ends_answer(end) if may_end else False
        if not (following or tape.final):
            return None
        # `std::vector<tool_call> calls`: a type in code.
        if _TYPE.fullmatch(marker.text) and following in _BEHIND_TYPES and (before.isalnum() or before == "_"):
            return False
        if marker.followed_by:
            behind = marker.followed_by.match(tape.text, end, partial=not tape.final)
            if not behind or behind.partial:
                return None if behind else False
        return self._is_where(marker, before, end)

    def _is_where(self, marker: Marker, before: str, end: int) -> bool | None:
        match marker.where:
            case "anywhere":
                return True
            case "after space":
                return not before or before.isspace() or before == ">"
            case "line start":
                return self._place.at_line_start()
            case "after answer":
                return self._is_answer and self._place.at_line_start()
            case "beginning":
                return not self._has_begun
            case "end":
                return self._ends_answer(end)

    def _ends_answer(self, end: int) -> bool | None:
        """Return whether nothing follows but ends of the turn; None if more text is needed."""
        final = self._tape.final
        after = self._tape.text[end : end + MAX_AFTER_END + 1]
        if len(after) > MAX_AFTER_END or not _NOTHING_BUT_ENDS.match(after, partial=not final):
            return False
        return True if final else None

    def _show_to(self, end: int) -> None:
        if end > self._tape.at:
            self._show(self._tape.text[self._tape.at - self._tape.base : end - self._tape.base])
            self._tape.at = end

    def _show(self, text: str) -> None:
        if text:
            self._place.passed(text)
            self._has_begun = self._has_begun or not text.isspace()
            self._out.append(text)
