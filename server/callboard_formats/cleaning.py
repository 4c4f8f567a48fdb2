"""Removes special tokens, labels and fragments of protocols from the text that the user sees.

The same text gives the same result, whole or cut anywhere. Text is held back only if it may be the beginning of a
marker, or if more text decides whether a marker is removed. All other text passes through unchanged. Markers in code,
in indented lines, in tables and beside quotation marks are quoted, so they pass through as well. The only exception are
tokens that end the answer behind other text in their line.
"""

import re
from collections.abc import Sequence

import regex

from callboard_formats.markdown import MarkdownTracker
from callboard_formats.markers import MESSAGE_ENDS, Marker, select_markers
from callboard_formats.quotation_marks import PAIRS
from callboard_formats.syntax import END_TOKENS
from callboard_formats.text_buffer import Reading, TextBuffer

MAX_AFTER_END = 48
_ENDS = frozenset(text.lower() for text in (*END_TOKENS, *MESSAGE_ENDS))
# For lower-case text, because `regex` needs 90 ms to compile this with IGNORECASE.
_NOTHING_BUT_ENDS = regex.compile(rf"(?:\s|{'|'.join(map(regex.escape, sorted(_ENDS)))})*\Z")
_TYPE = re.compile(r"<\w+>")
_BEHIND_TYPES = frozenset(" (>),;&*:")
_OPENING_QUOTES = frozenset(('"', "'", *PAIRS))
_CLOSING_QUOTES = frozenset(('"', "'", *PAIRS.values()))


class Cleaner:
    """Cleans one answer. Call `feed` for each piece, then `finish` once.

    `syntaxes` are the names of the syntaxes that are read; None means all. Their labels and fragments are removed.
    `model` is the model's name. Tokens that this model is known to leak are removed.
    """

    def __init__(self, syntaxes: Sequence[str] | None, model: str) -> None:
        self._markers, self._literals = select_markers(None if syntaxes is None else tuple(syntaxes), model)
        self._markdown = MarkdownTracker()
        self._buffer = TextBuffer()
        self._verbatim_to = 0
        """The position up to which text is passed on unchanged."""
        self._has_begun = False
        self._is_answer = False
        self._out: list[str] = []
        self._cleaning = self._clean()

    def answer_begins(self) -> None:
        """Note that the final answer begins here. The reader has already removed its marker from the text."""
        self._is_answer = True

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        self._buffer.feed(text)
        return self._clean_more()

    def pass_on(self, text: str) -> str:
        """Add text that is not cleaned, and return the text that can be shown now.

        The text is returned unchanged, unless a fragment that is being removed ends inside it.
        """
        self._buffer.feed(text)
        self._verbatim_to = self._buffer.end
        return self._clean_more()

    def finish(self) -> str:
        """Return the text that was held back."""
        self._buffer.final = True
        return self._clean_more()

    def _clean_more(self) -> str:
        next(self._cleaning, None)
        self._buffer.emitted_to = self._buffer.position
        out = "".join(self._out)
        self._out.clear()
        return out

    def _clean(self) -> Reading[None]:
        """Show the text and remove the markers in it."""
        buffer = self._buffer
        while True:
            self._show_to(self._verbatim_to)
            start, found = self._literals.find(buffer.text, buffer.position - buffer.base, final=buffer.final)
            self._show_to(buffer.base + start)
            spellings = self._markers.get(found, {})
            marker = spellings.get(buffer.text[start : start + len(found)]) or spellings.get("")
            is_removable = self._is_removable(marker, start + len(found)) if marker else False
            if marker and is_removable:
                buffer.position += len(found)
                self._show(marker.instead)
                self._is_answer = self._is_answer or marker.answers
                for skip in marker.then:
                    yield from skip(buffer)
            elif found and is_removable is not None:
                self._show_to(buffer.position + 1)
            elif buffer.final:
                return
            else:
                yield

    def _is_removable(self, marker: Marker, end: int) -> bool | None:
        """Return whether `marker`, which ends at the index `end`, is removed; None if more text is needed.

        It is not removed if it is quoted, or if it is a part of prose.
        """
        buffer = self._buffer
        before = buffer.before(buffer.position, 1)
        following = buffer.text[end : end + 1]
        # At the beginning of the answer, a quotation mark behind the marker closes nothing.
        is_quoted = before and (before in _OPENING_QUOTES or following in _CLOSING_QUOTES)
        if self._markdown.is_literal() or is_quoted:
            # A token at the end of the answer is removed even here, if other text precedes it in its line.
            may_end = marker.text.lower() in _ENDS and self._markdown.is_behind_words()
            return self._ends_answer(end) if may_end else False
        if not (following or buffer.final):
            return None
        # `std::vector<tool_call> calls` is a type in code.
        if _TYPE.fullmatch(marker.text) and following in _BEHIND_TYPES and (before.isalnum() or before == "_"):
            return False
        if marker.followed_by:
            behind = marker.followed_by.match(buffer.text, end, partial=not buffer.final)
            if not behind or behind.partial:
                return None if behind else False
        return self._is_at_its_place(marker, before, end)

    def _is_at_its_place(self, marker: Marker, before: str, end: int) -> bool | None:
        match marker.where:
            case "anywhere":
                return True
            case "after space":
                return not before or before.isspace() or before == ">"
            case "line start":
                return self._markdown.is_at_line_start()
            case "after answer":
                return self._is_answer and self._markdown.is_at_line_start()
            case "beginning":
                return not self._has_begun
            case "end":
                return self._ends_answer(end)

    def _ends_answer(self, end: int) -> bool | None:
        """Return whether only tokens that end the turn follow; None if more text is needed."""
        final = self._buffer.final
        after = self._buffer.text[end : end + MAX_AFTER_END + 1]
        if len(after) > MAX_AFTER_END or not _NOTHING_BUT_ENDS.match(after.lower(), partial=not final):
            return False
        return True if final else None

    def _show_to(self, end: int) -> None:
        if end > self._buffer.position:
            self._show(self._buffer.text[self._buffer.position - self._buffer.base : end - self._buffer.base])
            self._buffer.position = end

    def _show(self, text: str) -> None:
        if text:
            self._markdown.feed(text)
            self._has_begun = self._has_begun or not text.isspace()
            self._out.append(text)
