"""The interface of formats. A format describes tools to a model and reads the calls in its answer.

The tool loop keeps every conversation as OpenAI chat messages with `tool_calls` and `role: "tool"`. A format turns them
into a request that its model understands, and reads the answer back. So the loop, the store and replay handle one
shape, and a chat can continue with a model of another format.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from callboard.calls import RejectedCall, ResolvedCall, Tool, ToolCall
from callboard.models import ChatDict, ModelDelta, ModelRequest
from callboard_formats import ReasoningPiece, TextPiece

ClaimId = Callable[[str], str]
"""Returns an id that is unique within the chat, given the model's id for a call ("" if it gave none)."""


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """A piece of a call's arguments. All pieces of a call, joined, are its `arguments_text`."""

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


class Format(Protocol):
    """A way to write calls in a model's input and output."""

    @property
    def name(self) -> str:
        """The format's name in settings, such as `auto`, `native` or `react`."""
        ...

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return the request for the model. Without tools the model must answer in text."""
        ...

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return a reader for the answer to the request with these tools and messages."""
        ...


def round_messages(
    text: str, calls: Sequence[ToolCall | ResolvedCall | RejectedCall], results: Sequence[str]
) -> list[ChatDict]:
    """Return one round as OpenAI messages: an assistant message with the calls, then a `tool` message for each result.

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
