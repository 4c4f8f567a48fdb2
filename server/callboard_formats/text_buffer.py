"""The text of an answer as it comes, and one place in it that moves forward.

Readers are generators: one that needs more text yields, and goes on when there is more. So each is
written as if all the text were there, and reads the same whether it comes whole or cut anywhere.
Places are counted from the answer's first character, so they stay true while what was read is let go.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Generator
from typing import TypeVar

import regex

LET_GO_CHARS = 4096
LOOK_BACK_CHARS = 256
MAX_REREADS = 8

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A reading that yields where it needs more text, and returns what it read."""

_SPACE = regex.compile(r"\s*+")


class TextBuffer:
    """The text so far, the place `at` that is read next, and `final`, once no more text comes.

    `is_cut`: no more text comes although the answer would have gone on, so its end was not seen.
    """

    def __init__(self, text: str = "", *, final: bool = False) -> None:
        self.position = 0
        self.final = final
        self.is_cut = False
        self.text = text
        self.base = 0
        self.emitted_to = 0
        """The end of the text that was handed on: what stands behind it is not let go."""
        self.boundary = 0
        """The answer's beginning, or right after a block or a thought: what follows stands as if on a new line."""
        self._looks_back: Counter[str] = Counter()
        self._reached = 0
        """The furthest place that was gone back from."""
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
        """The place behind the last character."""
        return self.base + len(self.text)

    def feed(self, text: str) -> None:
        """Add what has come."""
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
        """Keep all from `at` on, until `forget`; return the place."""
        if self._kept_from is None:
            self._kept_from = self.position
        return self.position

    def forget(self) -> None:
        """Let go of what was kept."""
        self._kept_from = None
        self._kept.clear()
        self._kept_starts.clear()

    def rewind(self, place: int) -> None:
        """Go back to a place that was kept."""
        self._reached = max(self._reached, self.position)
        if place < self.base:
            number = bisect_right(self._kept_starts, place) - 1
            self.text = "".join([*self._kept[number:], self.text])
            self.base = self._kept_starts[number]
            del self._kept[number:], self._kept_starts[number:]
        self.position = place

    def may_look_back(self, reader: str, times: int = 1) -> bool:
        """Return True the first time only that this reader asks, or so many `times`.

        To go back from the end of the text once for each block would take quadratic time.
        """
        self._looks_back[reader] += 1
        return self._looks_back[reader] <= times

    def looks_back(self, reader: str) -> int:
        """Return how often this reader has asked whether it may look back."""
        return self._looks_back[reader]

    def may_reread(self, start: int) -> bool:
        """Return whether to read from `start` on once more keeps to `MAX_REREADS` times the text so far, in all.

        To go back from the end of the text again and again, for each of many blocks, would take quadratic time.
        """
        reached = max(self._reached, self.position)
        self._reread_chars += reached - start
        return self._reread_chars <= MAX_REREADS * reached

    def cut(self, start: int, end: int) -> str:
        """Return the text from `start`, which was kept, to `end`."""
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
        """Return the characters right before `place`, so many at most."""
        index = place - self.base
        return self.text[max(0, index - chars) : index]

    def line_before(self) -> str:
        """Return what stands before `at` in its line, or a part of it that is long enough to be no beginning."""
        start = max(self.base, self.position - LOOK_BACK_CHARS, self.boundary)
        before = self.text[start - self.base : self.index]
        return before[before.rfind("\n") + 1 :]

    def at_line_start(self) -> bool:
        """Return whether nothing but white space stands before `at` in its line."""
        start = max(self.base, self.position - LOOK_BACK_CHARS, self.boundary)
        index = self.index
        line_end = self.text.rfind("\n", start - self.base, index)
        if line_end < 0 and start != self.boundary:
            return False
        before = self.text[line_end + 1 if line_end >= 0 else start - self.base : index]
        return not before or before.isspace()

    def is_at_end(self) -> bool:
        """Return whether all that has come was read."""
        return self.position >= self.end

    def ends_here(self) -> Reading[bool]:
        """Return whether the answer ends at `at`: False if it was cut off there."""
        return not (yield from self.peek()) and not self.is_cut

    def match(self, pattern: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
        """Return what `pattern` matches at `at`, once that is sure."""
        while True:
            found = pattern.match(self.text, self.index, partial=not self.final)
            if found is None or not found.partial:
                return found
            yield

    def take(self, pattern: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
        """Return what `pattern` matches at `at`, and move behind it."""
        found = yield from self.match(pattern)
        if found:
            self.position += len(found[0])
        return found

    def cut_off(self, pattern: "regex.Pattern[str]") -> "regex.Match[str] | None":
        """Return the partial match of `pattern` at `at` where the text ends before the match is complete."""
        found = pattern.match(self.text, self.index, partial=True)
        return found if found and found.partial else None

    def find(self, pattern: "regex.Pattern[str]") -> "Reading[regex.Match[str] | None]":
        """Move to the next place that `pattern` matches and return that; at the end of the text, None."""
        while True:
            found = pattern.search(self.text, self.index, partial=not self.final)
            if found is None:
                self.position = self.end
                if self.final:
                    return None
            else:
                self.position = self.base + found.start()
                if not found.partial:
                    return found
            yield

    def space(self) -> Reading[None]:
        """Move behind the white space at `at`, all of it."""
        while True:
            found = _SPACE.match(self.text, self.index)
            self.position += len(found[0]) if found else 0
            if self.position < self.end or self.final:
                return
            yield

    def peek(self) -> Reading[str]:
        """Return the character at `at`; "" at the end of the answer."""
        while self.position >= self.end:
            if self.final:
                return ""
            yield
        index = self.index
        return self.text[index : index + 1]


def read_now(reading: "Reading[T]") -> T:
    """Return what a reading of a text that is all there returns."""
    try:
        while True:
            next(reading)
    except StopIteration as done:
        result: T = done.value
        return result
