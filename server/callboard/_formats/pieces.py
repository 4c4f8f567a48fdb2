"""The pieces that a reader makes of a model's answer, and the interface of readers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from callboard.calls import ToolCall
from callboard.models import ModelDelta
from callboard_formats import ReasoningPiece, TextPiece

ClaimId = Callable[[str], str]
"""Returns an id that is unique within the chat, given the model's id for a call ("" if it gave none)."""


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """A piece of a call's arguments, to be shown; the call's start has the final text, which may differ."""

    call_id: str
    name: str
    text: str


Piece = TextPiece | ReasoningPiece | ArgumentsPiece


def make_pieces(reasoning: str, text: str) -> list[Piece]:
    """Return a piece for the reasoning and a piece for the text after it; no piece for an empty string."""
    pieces: list[Piece] = [ReasoningPiece(reasoning)] if reasoning else []
    return [*pieces, TextPiece(text)] if text else pieces


class Reader(Protocol):
    """Reads one answer of a model while it is streamed. The same deltas always give the same pieces."""

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return the pieces that can be shown now."""
        ...

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back. Call it once, after the last delta."""
        ...

    def calls(self) -> list[ToolCall]:
        """Return the calls of the answer in the order they began. Call it after `finish`."""
        ...
