"""The interface of every model: an asynchronous stream of deltas for a list of chat messages.

A model turns one request into deltas and knows neither tools' code nor the loop that
calls it again. Deltas say what came over the wire, unmended: putting tool calls together
is the work of `callboard._formats`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

ChatDict = dict[str, Any]
"""One OpenAI chat message as the model is sent it."""


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
    """A piece of the words in which the model refuses to answer (`refusal`)."""

    text: str


@dataclass(frozen=True, slots=True)
class PictureDelta:
    """A picture that the model made, at a web address or in a `data:` URL."""

    url: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One entry of a chunk's `tool_calls`; a field that was absent is None.

    A field of another type than OpenAI's is here as text that means the same: an `index` as its number where it is
    one, everything else as JSON. `details`: under `call` and `function` the fields of these that OpenAI does not have.
    `is_whole`: the entry stands in a whole message, where `index` is its place, and may
    repeat a call that was streamed before.
    """

    index: int | str | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class MessageDetails:
    """Fields of an assistant message that OpenAI does not have, and its reasoning; the endpoint may want them back.

    `is_whole`: of a whole message, not of a piece.
    """

    fields: Mapping[str, Any]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens that one model call took; `cached_tokens` are of the input, `reasoning_tokens` of the output.

    `cost` is in the money that the endpoint counts in; None where it does not say.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            _add_costs(self.cost, other.cost),
        )


def _add_costs(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the answer.

    `reason` is `stop`, `length`, `tool_calls`, `content_filter`, `refusal`, `malformed_function_call` or `error`; the
    endpoint's own word where it is none of these; None where the stream ended without a reason. `word` is what the
    endpoint said, where that is another word for `reason`.
    """

    reason: str | None
    word: str = ""


ModelDelta = (
    TextDelta | ReasoningDelta | RefusalDelta | PictureDelta | ToolCallDelta | MessageDetails | TokenUsage | Finish
)


RESERVED_OPTIONS = frozenset(
    {"model", "models", "fallbacks", "api_base", "base_url", "api_key"}
    | {"messages", "prompt", "stream", "stream_options", "n", "extra_body", "extra_headers", "extra_query"}
    | {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
    | {"user", "metadata", "store", "callboard"}
    | {"logprobs", "top_logprobs", "modalities", "audio"}
)
"""The fields of a request that no client may set at the endpoint.

They belong to the tool loop, to the server that keeps the chat, or ask for output that no answer carries.
"""


def select_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that go to the endpoint: all that have a value and are not reserved.

    Which parameters an endpoint knows only the endpoint can tell, so it accepts or refuses them.
    """
    return {name: value for name, value in given.items() if name not in RESERVED_OPTIONS and value is not None}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A call of a model. `tools` are OpenAI function schemas; empty means that it must answer in text.

    `stops`: texts at which the model is to stop, four at most; a model may ignore them. `options`: parameters for the
    endpoint, such as `temperature` or `top_k`; those in `RESERVED_OPTIONS` are not sent. `must_call`: the model
    may answer with calls of its tools alone; `one_call`: with no more than one of them.
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
        """The name that the model is called by, in logs and errors."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Return the answer as it comes. Raises `ModelError` and its kin; closing the iterator ends the request."""
        ...

    async def aclose(self) -> None:
        """Let go of connections; the server's default model is closed when the server stops."""


@runtime_checkable
class ModelEndpoint(ChatModel, Protocol):
    """A model whose endpoint serves others too."""

    async def list_names(self) -> list[str]:
        """Return the models there. Raises `ModelError`."""
        ...

    async def find_name(self) -> str:
        """Return the model's name, which the endpoint is asked for where nobody chose one. Raises `ModelError`."""
        ...

    def named(self, name: str) -> ChatModel:
        """Return another model of the same endpoint, over the same connections."""
        ...


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What an endpoint tells of a model; empty where it does not.

    `template` is its chat template, `prompt` one that was made by it for a question with a tool. `other_names` are
    those of its files or its maker, where it is served under a name of its own. `told_by` is the program.
    """

    template: str = ""
    prompt: str = ""
    other_names: tuple[str, ...] = ()
    told_by: str = ""


@runtime_checkable
class DescribedModel(Protocol):
    """A model whose endpoint may be asked about it."""

    @property
    def address(self) -> str:
        """The endpoint's address, without what is secret in it."""
        ...

    async def describe(self) -> ModelDescription:
        """Return what the endpoint tells of the model; an empty description where it does not. Raises nothing."""
        ...
