"""The interface of every model: an asynchronous stream of deltas for a list of chat messages.

A model turns one request into deltas. It does not know tools' code or the loop that calls it. Deltas hold the
endpoint's data piece by piece; `CallJoiner` makes tool calls of them.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from callboard_protocol import Usage

ChatDict = dict[str, Any]
"""A chat message in OpenAI's form."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of answer text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of reasoning text (`reasoning_content`, `reasoning`)."""

    text: str


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """A piece of the text in which the model refuses to answer (`refusal`)."""

    text: str


@dataclass(frozen=True, slots=True)
class PictureDelta:
    """A picture that the model made, as a web address or a `data:` URL."""

    url: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One entry of a chunk's `tool_calls`. A missing field is None.

    A field of another type than OpenAI's is converted to text: an `index` to an integer if possible, every other field
    to JSON.

    Attributes:
        details: The fields that OpenAI does not have, under `call` and `function`.
        is_whole: The entry is part of a whole message. `index` is its position there, and it may repeat a call that was
            streamed before.
    """

    index: int | str | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class MessageDetails:
    """The reasoning of an assistant message and its fields that OpenAI does not have. The endpoint may need them back.

    `is_whole`: the fields belong to a whole message, not to a piece.
    """

    fields: Mapping[str, Any]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens of one model request. `cached_tokens` are part of the input, `reasoning_tokens` of the output.

    `cost` is in the endpoint's currency, None if the endpoint does not report it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    def to_event(self) -> Usage:
        """Return the event for these tokens, without their cost."""
        tokens = asdict(self)
        del tokens["cost"]
        return Usage(**tokens)

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        costs = [usage.cost for usage in (self, other) if usage.cost is not None]
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(costs) if costs else None,
        )


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of an answer.

    Attributes:
        reason: `stop`, `length`, `tool_calls`, `content_filter`, `refusal`, `malformed_function_call` or `error`; for
            any other reason the endpoint's word; None if the stream ended without a reason.
        word: The endpoint's word if it differs from `reason`.
    """

    reason: str | None
    word: str = ""


@dataclass(frozen=True, slots=True)
class ToolsRefused:
    """The tools that the endpoint refuses, so that they were not offered: its words by their names. The first delta."""

    reasons: Mapping[str, str]


ModelDelta = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | PictureDelta
    | ToolCallDelta
    | MessageDetails
    | TokenUsage
    | Finish
    | ToolsRefused
)


RESERVED_OPTIONS = frozenset(
    {"model", "models", "fallbacks", "api_base", "base_url", "api_key"}
    | {"messages", "prompt", "stream", "stream_options", "n", "extra_body", "extra_headers", "extra_query"}
    | {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
    | {"user", "metadata", "store", "callboard"}
    | {"logprobs", "top_logprobs", "modalities", "audio"}
)
"""The request fields that clients may not set at the endpoint. They belong to the tool loop or to the server that
stores the chat, or they request output that no answer carries."""


def select_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for the endpoint: those with a value that are not reserved.

    Unknown options are passed on, because only the endpoint knows its parameters.
    """
    return {name: value for name, value in given.items() if name not in RESERVED_OPTIONS and value is not None}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model.

    Attributes:
        messages: The conversation.
        tools: OpenAI function schemas; without any, the model must answer in text.
        stops: Up to four texts at which the model should stop. A model may ignore them.
        options: Parameters for the endpoint, such as `temperature`. Those in `RESERVED_OPTIONS` are not sent.
        must_call: The model must call a tool.
        one_call: The model may make at most one call.
    """

    messages: Sequence[ChatDict]
    tools: Sequence[Mapping[str, Any]] = ()
    stops: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    must_call: bool = False
    one_call: bool = False


class ChatModel(Protocol):
    """A model that an agent can talk to."""

    @property
    def name(self) -> str:
        """The model's name, for logs and errors."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the answer's deltas. Raises `ModelError` and its subclasses. Closing the iterator ends the request."""
        ...

    async def aclose(self) -> None:
        """Close connections. The server closes its default model when it stops."""


@runtime_checkable
class ModelEndpoint(ChatModel, Protocol):
    """A model whose endpoint serves other models too."""

    async def list_names(self) -> list[str]:
        """Return the names of the endpoint's models. Raises `ModelError`."""
        ...

    async def find_name(self) -> str:
        """Return the model's name, asking the endpoint if none was chosen. Raises `ModelError`."""
        ...

    def named(self, name: str) -> ChatModel:
        """Return another model of the same endpoint, which shares the connections."""
        ...


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The facts that an endpoint reports about a model, empty if unknown.

    Attributes:
        template: The model's chat template.
        prompt: A prompt made with the template, for a question with a tool.
        other_names: The names of the model's files or of its original, if it is served under another name.
        program: The program that reported the facts.
    """

    template: str = ""
    prompt: str = ""
    other_names: tuple[str, ...] = ()
    program: str = ""


@runtime_checkable
class DescribedModel(Protocol):
    """A model whose endpoint may describe it."""

    @property
    def address(self) -> str:
        """The endpoint's address without secrets."""
        ...

    async def describe(self) -> ModelDescription:
        """Return the endpoint's description of the model, empty if it has none. Raises nothing."""
        ...
