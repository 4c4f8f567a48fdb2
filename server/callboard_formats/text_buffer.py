"""The text of a streamed answer with the position that is read next.

Readers are generators. A reader that needs more text yields, and continues when more text has arrived. So each reader
is written as if it had the whole text, and it gives the same result for a whole text and for pieces cut anywhere.
Positions count from the first character of the answer, so they stay valid when text that was read is dropped.
"""

from bisect import bisect_right
from collections.abc import Generator
from typing import TypeVar

import regex

from callboard_formats.literals import Literals

LET_GO_CHARS = 4096
LOOK_BACK_CHARS = 256
MAX_REREADS = 8

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A generator that yields when it needs more text, and returns its result."""

_SPACE = regex.compile(r"\s*+")


class TextBuffer:
    """The text so far.

    Attributes:
        position: The position that is read next.
        final: No more text follows.
        is_cut: No more text follows because the answer was cut off, so its end is unknown.
        text: The part of the text that is in memory.
        base: The position of the first character of `text`.
        emitted_to: The end of the text that was passed on. Text behind it is not dropped.
        boundary: The beginning of the answer, or the end of the last block or thought. A line begins there.
        failed_blocks: The number of blocks of other syntaxes that were read and turned out to be text (see `at_end`).
    """

    def __init__(self, text: str = "", *, final: bool = False) -> None:
        self.position = 0
        self.final = final
        self.is_cut = False
        self.text = text
        self.base = 0
        self.emitted_to = 0
        self.boundary = 0
        self.failed_blocks = 0
        self._reached = 0
        """The largest position from which `rewind` was called."""
        self._reread_chars = 0
        self._kept_from: int | None = None
        self._kept: list[str] = []
        self._kept_starts: list[int] = []

    @property
    def index(self) -> int:
        """The index of `position` in `text`."""
        return self.position - self.base

    @property
    def end(self) -> int:
        """The position behind the last character."""
        return self.base + len(self.text)

    def feed(self, text: str) -> None:
        """Append text, and drop text that was read and passed on."""
        is_kept = self._kept_from is not None
        read = self.position if is_kept else min(self.position, self.emitted_to)
        if read - self.base > LET_GO_CHARS:
            cut = read - self.base - LOOK_BACK_CHARS
            if is_kept:
                self._kept.append(self.text[:cut])
                self._kept_starts.append(self.base)
            self.text = self.text[cut:]
            self.base += cut
        self.text += text

    def keep(self) -> int:
        """Keep all text from `position` on in memory until `forget`. Return the position, for `rewind`."""
        if self._kept_from is None:
            self._kept_from = self.position
        return self.position

    def forget(self) -> None:
        """Stop keeping text for `rewind`."""
        self._kept_from = None
        self._kept.clear()
        self._kept_starts.clear()

    def rewind(self, place: int) -> None:
        """Go back to a position that was kept."""
        self._reached = max(self._reached, self.position)
        if place < self.base:
            number = bisect_right(self._kept_starts, place) - 1
            self.text = "".join([*self._kept[number:], self.text])
            self.base = self._kept_starts[number]
            del self._kept[number:], self._kept_starts[number:]
        self.position = place

    def may_reread(self, start: int) -> bool:
        """Return whether the text from `start` on may be read again.

        All repeated reading together is limited to `MAX_REREADS` times the length of the text. Without a limit, going
        back from the end of the text for each of many blocks would take quadratic time.
        """
        reached = max(self._reached, self.position)
        self._reread_chars += reached - start
        return self._reread_chars <= MAX_REREADS * reached

    def cut(self, start: int, end: int) -> str:
        """Return the text from `start` to `end`. Text before `position` must have been kept."""
        if start >= self.base:
            return self.text[start - self.base : end - self.base]
        first = bisect_right(self._kept_starts, start) - 1
        last = bisect_right(self._kept_starts, end)
        text = "".join(self._kept[first:last])
        offset = self._kept_starts[first]
        if end > self.base:
            text += self.text[: end - self.base]
        return text[start - offset : end - offset]

    def before(self, place: int, chars: int) -> str:
        """Return up to `chars` characters right before `place`."""
        index = place - self.base
        return self.text[max(0, index - chars) : index]

    def line_before(self) -> str:
        """Return the line up to `position`, at most its last `LOOK_BACK_CHARS` characters."""
        start = max(self.base, self.position - LOOK_BACK_CHARS, self.boundary)
        before = self.text[start - self.base : self.index]
        return before[before.rfind("\n") + 1 :]

    def at_line_start(self) -> bool:
        """Return whether only white space precedes `position` in its line."""
        start = max(self.base, self.position - LOOK_BACK_CHARS, self.boundary)
        index = self.index
        line_end = self.text.rfind("\n", start - self.base, index)
        if line_end < 0 and start != self.boundary:
            return False
        before = self.text[line_end + 1 if line_end >= 0 else start - self.base : index]
        return not before or before.isspace()

    def is_at_end(self) -> bool:
        """Return whether all text so far was read."""
        return self.position >= self.end

    def ends_here(self) -> Reading[bool]:
        """Return whether the answer ends at `position` and was not cut off there."""
        return not (yield from self.peek()) and not self.is_cut

    def match(self, pattern: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
        """Return the match of `pattern` at `position`, as soon as more text cannot change it."""
        while True:
            found = pattern.match(self.text, self.index, partial=not self.final)
            if found is None or not (found.partial or self._may_end_later(found)):
                return found
            yield

    def match_literal(self, literals: Literals) -> Reading[str]:
        """Return the longest of these literals at `position`, once more text cannot change it; "" if there is none."""
        while not self.final and literals.may_grow(self.text, self.index):
            yield
        return literals.match(self.text, self.index)

    def take(self, pattern: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
        """Return the match of `pattern` at `position`, and move behind it."""
        found = yield from self.match(pattern)
        if found:
            self.position += len(found[0])
        return found

    def cut_off(self, pattern: "regex.Pattern[str]") -> "regex.Match[str] | None":
        """Return the partial match of `pattern` at `position` if the text ends inside it."""
        found = pattern.match(self.text, self.index, partial=True)
        return found if found and found.partial else None

    def find(self, pattern: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
        """Move to the next match of `pattern` and return it; move to the end and return None if there is none."""
        while True:
            found = pattern.search(self.text, self.index, partial=not self.final)
            if found is None:
                self.position = self.end
                if self.final:
                    return None
            else:
                self.position = self.base + found.start()
                if not (found.partial or self._may_end_later(found)):
                    return found
            yield

    def _may_end_later(self, found: "regex.Match[str]") -> bool:
        r"""Return whether `\Z` may have matched here only because the rest of the answer has not arrived."""
        return not self.final and found.end() == len(self.text) and r"\Z" in found.re.pattern

    def space(self) -> Reading[None]:
        """Move behind the white space at `position`."""
        while True:
            found = _SPACE.match(self.text, self.index)
            self.position += len(found[0]) if found else 0
            if self.position < self.end or self.final:
                return
            yield

    def peek(self) -> Reading[str]:
        """Return the character at `position`; "" at the end of the answer."""
        while self.position >= self.end:
            if self.final:
                return ""
            yield
        index = self.index
        return self.text[index : index + 1]


def read_now(reading: "Reading[T]") -> T:
    """Return the result of a reading. The buffer must have the whole text."""
    try:
        while True:
            next(reading)
    except StopIteration as done:
        result: T = done.value
        return result
