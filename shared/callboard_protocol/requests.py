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
    """The user who is asking, as the client knows them; `groups` are the names of those that they are in."""

    id: Identifier
    name: str = ""
    email: str = ""
    role: str = "user"
    groups: tuple[str, ...] = ()


class FunctionCall(Wire):
    """The function half of an OpenAI tool call; `arguments` is JSON text as the model wrote it."""

    name: str
    arguments: str = ""


class ToolCallPart(Wire):
    """One entry of an assistant message's `tool_calls`."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Wire):
    """An OpenAI chat message; fields that are not named here are kept and passed on."""

    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: tuple[ToolCallPart, ...] | None = None
    tool_call_id: str | None = None

    def to_openai(self) -> dict[str, Any]:
        """Return the message as an OpenAI chat dict, without the fields that are unset."""
        return {"content": self.content, **self.model_dump(mode="json", exclude_none=True)}


class OfferedFunction(Wire):
    """A function that the client has and runs itself; `parameters` is the JSON schema of its arguments."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None


class RunRequest(Wire):
    """The body of `POST /v1/runs`.

    `messages` is the active branch as the client sees it. `chat_id` and `message_id` may be
    null: the run works and nothing is kept. `task` names a background task of the client
    (`title_generation`, …): a plain completion without tools. A `run_id` chosen by the
    client attaches to that run where it exists. A call of one of the `functions` ends the run
    with `tool_calls`, and the next request brings its result; with `must_call` the model may not
    end its turn without one. `recall`: whether what agents know of the user may go into their prompt.
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

    A null `value` is no answer. Then `asked` says whether the user saw the question: it is false if nobody could be
    asked.
    """

    request_id: RequestId
    value: Any = None
    asked: bool = True
