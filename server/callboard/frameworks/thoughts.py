"""Reads a thought that a model writes into the text of its answer, between `<think>` and `</think>`.

Endpoints without a reasoning parser pass the tags on, and no framework reads them in every form:
https://docs.vllm.ai/en/latest/features/reasoning_outputs/
"""

from collections.abc import Iterator
from dataclasses import dataclass

OPENER = "<think>"
CLOSER = "</think>"


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of an answer: of its thought, or of its text."""

    text: str
    is_thought: bool = False


class ThoughtReader:
    """Separates the thought at the beginning of one answer from its text. A tag anywhere else is text.

    Spaces and line breaks around a tag belong to neither.
    """

    def __init__(self) -> None:
        self._is_decided = False
        self._in_thought = False
        self._follows_tag = False
        self._held = ""

    def feed(self, text: str) -> Iterator[Words]:
        """Yield the words that are certain now; the beginning of a tag is held back."""
        text = self._held + text
        self._held = ""
        if not self._is_decided:
            begun = text.lstrip()
            if len(begun) < len(OPENER) and OPENER.startswith(begun):
                self._held = text
                return
            self._is_decided = True
            if begun.startswith(OPENER):
                self._in_thought = self._follows_tag = True
                text = begun.removeprefix(OPENER)
        if self._in_thought:
            text, closer, rest = text.partition(CLOSER)
            self._held = "" if closer else _begun_closer(text)
            yield from self._read(text.removesuffix(self._held))
            if not closer:
                return
            self._in_thought = False
            self._follows_tag = True
            text = rest
        yield from self._read(text)

    def finish(self) -> Iterator[Words]:
        """Yield what was held back: the answer is over."""
        held, self._held = self._held, ""
        yield from self._read(held)

    def _read(self, text: str) -> Iterator[Words]:
        if self._follows_tag:
            text = text.lstrip()
            self._follows_tag = not text
        if text:
            yield Words(text, self._in_thought)


def _begun_closer(text: str) -> str:
    """Return the end of the text that may be the beginning of the closing tag."""
    lengths = range(len(CLOSER) - 1, 0, -1)
    return next((CLOSER[:length] for length in lengths if text.endswith(CLOSER[:length])), "")
