"""Formats: each says how a model is told of its tools, and how calls are read out of its answer.

The loop keeps the conversation as OpenAI chat messages, `tool_calls` and `role: "tool"`
included, whatever the model speaks; a format turns them into the request that this model
understands and reads the answer back. So the loop, the store and replay know one shape,
and a chat may go on with a model of another format. Above: the loop. Below: tools, models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from callboard.calls import RejectedCall, ResolvedCall, Tool, ToolCall
from callboard.models import ChatDict, ModelDelta, ModelRequest
from callboard_formats import ReasoningPiece, TextPiece

ClaimId = Callable[[str], str]
"""The way from the id that a model gave a call, or "", to one that is unique within the chat."""


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """A piece of a call's arguments; all pieces of a call, joined, are its `arguments_text`."""

    call_id: str
    name: str
    text: str


Piece = TextPiece | ReasoningPiece | ArgumentsPiece


def shown_pieces(reasoning: str, text: str) -> list[Piece]:
    """Return the pieces for reasoning and for text behind it; none for what is empty."""
    pieces: list[Piece] = [ReasoningPiece(reasoning)] if reasoning else []
    return [*pieces, TextPiece(text)] if text else pieces


class Reader(Protocol):
    """A reader of one answer of a model as it comes. Pure: the same deltas give the same pieces."""

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return what can be shown now."""
        ...

    def finish(self) -> list[Piece]:
        """Return what was held back; called once, after the last delta."""
        ...

    def calls(self) -> list[ToolCall]:
        """Return the calls of the whole answer in the order they began; after `finish`."""
        ...


class Format(Protocol):
    """A way to write calls in a model's input and output."""

    @property
    def name(self) -> str:
        """The word for it in settings, such as `auto`, `native` or `react`."""
        ...

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return what this model is sent; without tools it must answer in text."""
        ...

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return a reader for the answer to a request with these tools and messages."""
        ...


def exchange(
    text: str, calls: Sequence[ToolCall | ResolvedCall | RejectedCall], results: Sequence[str]
) -> list[ChatDict]:
    """Return one round as OpenAI messages: the assistant's with its calls, then a `tool` message for each.

    `results` are in the order of `calls`.
    """
    asked = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
        for call in calls
    ]
    answers: list[ChatDict] = [
        {"role": "tool", "tool_call_id": call.id, "content": result}
        for call, result in zip(calls, results, strict=True)
    ]
    return [{"role": "assistant", "content": text or None, "tool_calls": asked}, *answers]
