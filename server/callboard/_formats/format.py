"""Formats: each says how a model is told of its tools, and how calls are read out of its answer.

The loop keeps the conversation as OpenAI chat messages, `tool_calls` and `role: "tool"`
included, whatever the model speaks; a format turns them into the request that this model
understands and reads the answer back. So the loop, the store and replay know one shape,
and a chat may go on with a model of another format. Above: the loop. Below: tools, models.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from callboard.calls import Tool
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


def make_pieces(reasoning: str, text: str) -> list[Piece]:
    """Return the pieces for reasoning and for text behind it; none for what is empty."""
    pieces: list[Piece] = [ReasoningPiece(reasoning)] if reasoning else []
    return [*pieces, TextPiece(text)] if text else pieces


MAX_NAME_CHARS = 256
"""The most characters of a tool's name as a model writes it; OpenAI's own names have 64 at most."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call as the model wrote it: `id` is unique within the chat, the rest may be nonsense.

    A name is cut at `MAX_NAME_CHARS`: no tool has one that long, and it is stored, shown and compared. What the call
    means, `callboard._formats.calls` finds out.

    `arguments_text`: kept to the letter, "" where the model wrote none.
    `truncated`: the output ended before the call did.
    `in_text`: it was written in the answer's text, where arguments need not be JSON.
    `untyped`: its arguments are texts, whose types the schema tells.
    `words`: where its arguments are no JSON, they may be the one text that the tool takes.
    `broken`: it is not written as its syntax wants, and refused.
    `syntax`: the name of the syntax that read it, "" for a native call.
    `rescued`: it stood in the text although nobody asked for calls there.
    `asks_first`: it runs without an approval only where its tool is `read_only`.
    `thought`: what the model wrote before it, where the format shows that to the model again.
    `provider_id`: the id that the endpoint gave it, "" where it gave none; `details` as `ToolCallDelta` has them.
    """

    id: str
    name: str
    arguments_text: str
    truncated: bool = False
    in_text: bool = False
    untyped: bool = False
    words: bool = False
    broken: bool = False
    syntax: str = ""
    rescued: bool = False
    asks_first: bool = False
    thought: str = ""
    provider_id: str = field(default="", compare=False)
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name[:MAX_NAME_CHARS])


class Reader(Protocol):
    """A reader of one answer of a model as it comes. Pure: the same deltas give the same pieces."""

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return what can be shown now."""
        ...

    def finish(self) -> list[Piece]:
        """Return what was held back; called once, after the last delta."""
        ...

    def calls(self) -> list[RequestedCall]:
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


def round_messages(text: str, calls: Sequence[RequestedCall], results: Sequence[str]) -> list[ChatDict]:
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
