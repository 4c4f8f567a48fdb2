"""The interface of formats. A format describes tools to a model and reads the calls in its answer.

The tool loop keeps every conversation as OpenAI chat messages with `tool_calls` and `role: "tool"`. A format turns them
into a request that its model understands, and reads the answer back. So the loop, the store and replay handle one
shape, and a chat can continue with a model of another format.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from callboard.calls import Tool
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


MAX_NAME_CHARS = 256
"""The number of characters kept of a tool's name that a model wrote. OpenAI's limit for names is 64."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call as the model wrote it. `id` is unique within the chat; `calls.understand` checks everything else.

    Attributes:
        name: Cut at `MAX_NAME_CHARS`, because it is stored, shown and compared, and no tool has a name that long.
        arguments_text: Exactly as written; "" if the model wrote none.
        truncated: The output ended before the call did.
        in_text: The call was written in the answer's text, where arguments need not be JSON.
        untyped: All arguments are strings; the schema says which type each is meant to be.
        words: Arguments that are not JSON may be the only string argument of the tool.
        broken: The call violates its syntax and is refused.
        syntax: The name of the syntax that the call was read in; "" for a native call.
        rescued: The call was found in text that was not asked to contain calls.
        asks_first: The call needs an approval unless its tool is `read_only`.
        thought: The model's words before the call, if the format shows them to the model again.
        provider_id: The endpoint's id of the call; "" if it gave none.
        details: See `ToolCallDelta`.
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
    """Reads one answer of a model while it is streamed. The same deltas always give the same pieces."""

    def feed(self, delta: ModelDelta) -> list[Piece]:
        """Return the pieces that can be shown now."""
        ...

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back. Call it once, after the last delta."""
        ...

    def calls(self) -> list[RequestedCall]:
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


def round_messages(text: str, calls: Sequence[RequestedCall], results: Sequence[str]) -> list[ChatDict]:
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
