"""Separates the thought that a model writes between `<think>` and `</think>` from the text of its answer.

Endpoints without a reasoning parser pass the tags on: https://docs.vllm.ai/en/latest/features/reasoning_outputs/
"""

import regex

from callboard_formats.text_buffer import Reading, TextBuffer

_OPENER = regex.compile(r"\s{0,80}+<think>", regex.IGNORECASE)
_CLOSER = regex.compile(r"\s{0,80}</think>", regex.IGNORECASE)


class LeadingThought:
    """Separates the thought at the beginning of an answer from the text. White space beside its tags is dropped.

    `feed` and `finish` return reasoning and text.
    """

    def __init__(self) -> None:
        self._buffer = TextBuffer()
        self._reading = self._read()
        self._thought: list[str] = []
        self._is_thinking = False
        self._has_text = False
        """All further text belongs to the answer."""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reasoning and the text that can be shown now."""
        if self._has_text:
            return "", text
        self._buffer.feed(text)
        return self._continue()

    def finish(self) -> tuple[str, str]:
        """Return the reasoning and the text that were held back."""
        if self._has_text:
            return "", ""
        self._buffer.final = True
        return self._continue()

    def _continue(self) -> tuple[str, str]:
        # The generator has ended if `next` returns its default.
        self._has_text = next(self._reading, True) is True
        if self._is_thinking:
            self._take_thought()
        thought = "".join(self._thought)
        self._thought.clear()
        return thought, self._buffer.text[self._buffer.index :] if self._has_text else ""

    def _read(self) -> Reading[None]:
        buffer = self._buffer
        if not (yield from buffer.take(_OPENER)):
            return
        yield from buffer.space()
        buffer.emitted_to = buffer.position
        self._is_thinking = True
        closer = yield from buffer.find(_CLOSER)
        self._take_thought()
        self._is_thinking = False
        buffer.position += len(closer[0]) if closer else 0
        yield from buffer.space()

    def _take_thought(self) -> None:
        buffer = self._buffer
        self._thought.append(buffer.cut(buffer.emitted_to, buffer.position))
        buffer.emitted_to = buffer.position
