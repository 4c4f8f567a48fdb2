"""Separates the thought that a model writes between `<think>` and `</think>` from the text of its answer.

Endpoints without a reasoning parser pass the tags on, and no framework handles every form of them:
https://docs.vllm.ai/en/latest/features/reasoning_outputs/
"""

from collections.abc import Iterator
from dataclasses import dataclass

OPENER = "<think>"
CLOSER = "</think>"


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A piece of an answer: of its text or of its thought."""

    text: str
    is_thought: bool = False


class ThoughtReader:
    """Splits one answer into the thought at its beginning and its text. Tags anywhere else are text.

    Whitespace around a tag is dropped.
    """

    def __init__(self) -> None:
        self._has_begun = False
        self._in_thought = False
        self._after_tag = False
        self._pending = ""

    def feed(self, text: str) -> Iterator[AnswerPiece]:
        """Yield the pieces that can be classified now. A possible part of a tag is kept until the next call."""
        text = self._pending + text
        self._pending = ""
        if not self._has_begun:
            begun = text.lstrip()
            if len(begun) < len(OPENER) and OPENER.startswith(begun):
                self._pending = text
                return
            self._has_begun = True
            if begun.startswith(OPENER):
                self._in_thought = self._after_tag = True
                text = begun.removeprefix(OPENER)
        if self._in_thought:
            text, closer, rest = text.partition(CLOSER)
            self._pending = "" if closer else _partial_closer(text)
            yield from self._read(text.removesuffix(self._pending))
            if not closer:
                return
            self._in_thought = False
            self._after_tag = True
            text = rest
        yield from self._read(text)

    def finish(self) -> Iterator[AnswerPiece]:
        """Yield the text that `feed` has kept, at the end of the answer."""
        held, self._pending = self._pending, ""
        yield from self._read(held)

    def _read(self, text: str) -> Iterator[AnswerPiece]:
        if self._after_tag:
            text = text.lstrip()
            self._after_tag = not text
        if text:
            yield AnswerPiece(text, self._in_thought)


def _partial_closer(text: str) -> str:
    """Return the end of the text that may be the beginning of the closing tag."""
    lengths = range(len(CLOSER) - 1, 0, -1)
    return next((CLOSER[:length] for length in lengths if text.endswith(CLOSER[:length])), "")
