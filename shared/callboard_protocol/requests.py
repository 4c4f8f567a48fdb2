"""The bodies of requests: `POST /v1/runs` and `POST /v1/runs/{run_id}/input`."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from callboard_protocol.wire import RequestId, Wire

__all__ = [
    "ChatMessage",
    "FunctionCall",
    "InputAnswer",
    "OfferedFunction",
    "RunRequest",
    "ToolCallPart",
    "User",
]

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


class User(Wire):
    """The user of a request, as the client knows them; `groups` are names of groups."""

    id: Identifier
    name: str = ""
    email: str = ""
    role: str = "user"
    groups: tuple[str, ...] = ()


class FunctionCall(Wire):
    """The `function` of an OpenAI tool call; `arguments` is JSON text as the model wrote it."""

    name: str
    arguments: str = ""


class ToolCallPart(Wire):
    """One entry of an assistant message's `tool_calls`."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Wire):
    """An OpenAI chat message; other fields are kept and passed on."""

    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: tuple[ToolCallPart, ...] | None = None
    tool_call_id: str | None = None

    def to_openai(self) -> dict[str, Any]:
        """Return the message as a dict in OpenAI's form, without unset fields."""
        return {"content": self.content, **self.model_dump(mode="json", exclude_none=True)}


class OfferedFunction(Wire):
    """A function that the client offers and runs itself; `parameters` is the JSON schema of its arguments."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None


class RunRequest(Wire):
    """The body of `POST /v1/runs`.

    `messages` is the client's active branch of the chat. Without `chat_id` or `message_id` the run works, but nothing
    is stored. `task` names a background task of the client (`title_generation`, …), which is a completion without
    tools. The client may choose a `run_id`; if this run exists, the request follows it. A call of one of the
    `functions` ends the run with `tool_calls`, and the next request contains its result; with `must_call` the model
    must make such a call before its turn ends. `recall`: whether the agents' memories of the user may be in the prompt.
    """

    agent: Identifier
    chat_id: Identifier | None = None
    message_id: Identifier | None = None
    user: User | None = None
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    task: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    run_id: RunId | None = None
    functions: tuple[OfferedFunction, ...] = Field(default=(), max_length=128)
    must_call: bool = False
    recall: bool = True


class InputAnswer(Wire):
    """The body of `POST /v1/runs/{run_id}/input`.

    A null `value` means that there is no answer. Then `asked` says whether the user saw the question; it is false if
    the client could not show it.
    """

    request_id: RequestId
    value: Any = None
    asked: bool = True
