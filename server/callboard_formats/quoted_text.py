"""What an answer quotes: a marker there is spoken of, not used, and all of the quotation is shown to the letter."""

import re

from callboard_formats.quotation import (
    PAIRS,
    QUOTES,
    Quotations,
    StraightMarks,
    end_of,
    ends_quotation,
)
from callboard_formats.tape import LOOK_BACK_CHARS, Reading, Tape

_INDENTED_CODE = re.compile(r"\S[^\n]*\n(?:[ \t\r]*\n)+(?:(?: {4}| {0,3}\t)[^\n]*\n)*(?: {4}| {0,3}\t)[ \t]*\Z")
_LATER_IN_INDENTED_CODE = re.compile(
    r"[^\n]*\n(?:[ \t\r]*\n)*(?:(?: {4}| {0,3}\t)[ \t]*[^\s][^\n]*\n(?:[ \t\r]*\n)*){3,}(?: {4}| {0,3}\t)[ \t]*"
)


class QuotedText:
    """The quotations of the answer on `tape`, asked about the marker at its place.

    It is told of the text that was `passed`, and of the places where something else than text ended. It is asked about
    a marker once all before it was passed.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._quotations = Quotations()
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
        self.passed = self._quotations.passed
        """Go on behind this text: called with each token of a model."""

    def clear(self) -> None:
        """Begin anew, behind something that is no text."""
        self._quotations.clear()
        self.verbatim_until = None

    def leave_fence(self) -> None:
        """Begin anew behind a fence that ends here: its closing marks open nothing."""
        self._quotations.clear()
        self._fence_end = self._tape.at

    def is_quoted(self, *, in_code: bool) -> Reading[bool]:
        """Return whether the marker here stands in a quotation that is closed, or in a program's string.

        `in_code`: the marker stands in programs for itself, so a string says nothing.
        """
        if (yield from self._is_in_closed_quotation()):
            return True
        return not in_code and (yield from self._is_in_string())

    def is_begun(self) -> bool:
        """Return whether the marker here stands right behind an opening mark, or further on in what that began."""
        tape = self._tape
        before = tape.before(tape.at, 1)
        if tape.at > tape.boundary and (before == "\\" or self._is_in_quoted_line()):
            self._closing_mark = "\n"
            return True
        if self.is_right_behind_opening_mark():
            self._closing_mark = PAIRS.get(before, before)
            return True
        return self.verbatim_until is not None

    def is_right_behind_opening_mark(self) -> bool:
        """Return whether a quotation mark stands right before this place that closes nothing in its line."""
        tape = self._tape
        before = tape.before(tape.at, 1)
        is_mark = tape.at > max(tape.boundary, self._fence_end) and bool(before) and before in QUOTES
        return is_mark and not ends_quotation(tape.line_before())

    def is_in_indented_code(self) -> bool:
        """Return whether the marker here begins an indented line of code, with text before the code."""
        tape = self._tape
        if tape.before(tape.at, 1) not in (" ", "\t") or tape.line_before().strip():
            return False
        start = max(tape.base, tape.at - LOOK_BACK_CHARS, tape.boundary)
        before = tape.text[start - tape.base : tape.at - tape.base]
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
        tape = self._tape
        if tape.before(tape.at, 1) not in (" ", "\t"):
            return False
        line = tape.line_before()
        begins_line = not tape.boundary or tape.boundary < tape.at - len(line)
        return begins_line and line.rstrip(" \t").removesuffix(",")[-1:].isalpha()

    def quote_up_to(self, end: int) -> None:
        """Take what stands from here to `end` for quoted."""
        self._end = max(self._end, end)
        self.verbatim_to = max(self.verbatim_to, end)

    def is_known_to_be_quoted(self) -> bool:
        """Return whether this place stands in a quotation whose end was seen."""
        return self._tape.at < self._end

    def quotes_closer(self, chars: int) -> Reading[bool]:
        """Return whether the thought's closer here, so many characters long, stands in quotation marks."""
        tape = self._tape
        before = tape.before(tape.at, 1)
        if not before or before not in QUOTES or tape.at <= tape.boundary:
            return False
        while not tape.final and tape.at + chars >= tape.end:
            yield
        behind = tape.at - tape.base + chars
        return is_closer_quoted(tape.line_before(), tape.text[behind : behind + 1])

    def take_verbatim_to_end(self) -> None:
        """Show to the letter what follows, up to the end of the quotation that holds this place."""
        self.verbatim_to = max(self._tape.at, self._end)
        self.verbatim_until = None

    def take_verbatim_until_closed(self) -> None:
        """Show to the letter what follows, up to what closes the quotation that has begun, or the line's end."""
        self.verbatim_to = self._tape.at
        self.verbatim_until = re.compile(f"[{re.escape(self._closing_mark)}\n]")

    def verbatim_end(self, start: int) -> int:
        """Return up to where the text from `start` to this place is to be shown to the letter; `start` if it is not."""
        tape = self._tape
        if start < self.verbatim_to:
            return min(self.verbatim_to, tape.at)
        if self.verbatim_until is None:
            return start
        closing_mark = self.verbatim_until.search(tape.cut(start, tape.at))
        if closing_mark is None:
            return tape.at
        self.verbatim_until = None
        return start + closing_mark.start()

    def _is_in_quoted_line(self) -> bool:
        """Return whether the marker here stands further on in a line of a block quotation or a table."""
        # Most fences begin a line: of what comes before them nothing is looked at then.
        return not self._tape.at_line_start() and self._quotations.is_quoted_line()

    def _is_in_closed_quotation(self) -> Reading[bool]:
        """Return whether the marker here stands in a quotation that ends within its paragraph."""
        tape = self._tape
        if self.is_known_to_be_quoted():
            return True
        for closer in self._quotations.closers():
            if closer == '"' and tape.before(tape.at, 1) != '"':
                yield from self._read_marks(self._double_marks)
                end = self._closed_in_line(self._double_marks)
            else:
                end = yield from self._closed_at(closer)
            if end is not None:
                self._end = end
                return True
            self._quotations.forget(closer)
        return False

    def _closed_at(self, closer: str) -> Reading[int | None]:
        """Return where a quotation is closed; None where its paragraph ends before that."""
        tape = self._tape
        pattern = end_of(closer)
        while True:
            start = max(tape.at, self._sought.get(closer, 0))
            found = pattern.search(tape.text, start - tape.base, partial=not tape.final)
            self._sought[closer] = tape.base + found.start() if found else tape.end
            # Another back-tick may follow the last one.
            if tape.final or (found and not found.partial and found.end() < len(tape.text)):
                if found is None and tape.is_cut:
                    return tape.end
                return tape.base + found.start() if found and found["closer"] else None
            yield

    def _closed_in_line(self, marks: StraightMarks) -> int | None:
        """Return where a quotation in straight marks is closed; None if that is not in its line."""
        tape = self._tape
        end = marks.closer(tape.at)
        # Of a line that was cut off nobody saw the other mark.
        return tape.end if end is None and tape.is_cut and marks.end == tape.end else end

    def _is_in_string(self) -> Reading[bool]:
        """Return whether the marker here stands in a program's string that ends in its line."""
        if not self._quotations.is_in_string():
            return False
        yield from self._read_marks(self._single_marks)
        end = self._closed_in_line(self._single_marks)
        self._end = end if end is not None else self._end
        return end is not None

    def _read_marks(self, marks: StraightMarks) -> Reading[None]:
        """Read the straight quotation marks in the rest of the line."""
        tape = self._tape
        if tape.at < marks.end:
            return
        while True:
            sought = max(tape.at, self._sought.get("\n", 0))
            line_end = tape.text.find("\n", sought - tape.base)
            if line_end >= 0 or tape.final:
                break
            self._sought["\n"] = tape.end
            yield
        index = tape.at - tape.base
        marks.read(tape.text[index : line_end if line_end >= 0 else len(tape.text)], tape.at)


def is_closer_quoted(before: str, following: str) -> bool:
    """Return whether a closer that stands between these texts stands in quotation marks."""
    mark = before[-1:]
    if not mark or mark not in QUOTES or following != PAIRS.get(mark, mark):
        return False
    return not ends_quotation(before[before.rfind("\n") + 1 :])
