"""The bodies of requests: `POST /v1/runs`, and `/input` and `/messages` of a run."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from callboard_protocol.wire import Items, Name, RequestId, Wire

__all__ = [
    "ChatMessage",
    "FunctionCall",
    "InputAnswer",
    "OfferedFunction",
    "OpenWebUITool",
    "RunMessage",
    "RunRequest",
    "ToolAnswer",
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
    groups: Items[str] = ()


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
    tool_calls: Items[ToolCallPart] | None = None
    tool_call_id: str | None = None

    def to_openai(self) -> dict[str, Any]:
        """Return the message as a dict in OpenAI's form, without unset fields."""
        # Strict endpoints refuse an empty list: https://github.com/openai/openai-python/issues/2061
        empty = set() if self.tool_calls else {"tool_calls"}
        return {"content": self.content, **self.model_dump(mode="json", exclude=empty, exclude_none=True)}


class OfferedFunction(Wire):
    """A function that the client offers and runs itself; `parameters` is the JSON schema of its arguments."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None


class OpenWebUITool(Wire):
    """A tool of Open WebUI, which the client runs for the user when a `ToolRequest` asks for it.

    `id`: names what has the tool in Open WebUI: a tool of the workspace, or a server. A tool that the user allows
    always is allowed with this id only. `is_builtin`: the tool is a part of Open WebUI, not attached by the user or the
    preset. `asks_first`: Open WebUI's own settings demand the user's approval of its calls.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    id: Annotated[str, StringConstraints(max_length=1024)] = ""
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    is_builtin: bool = False
    asks_first: bool = False


class RunRequest(Wire):
    """The body of `POST /v1/runs`.

    `messages` is the client's active branch of the chat. Without `chat_id` or `message_id` the run works, but nothing
    is stored. `task` names a background task of the client (`title_generation`, …), which is a completion without
    tools. The client may choose a `run_id`; if this run exists, the request follows it. A call of one of the
    `functions` ends the run with `tool_calls`, and the next request contains its result; with `must_call` the model
    must make such a call before its turn ends. `recall`: whether the agents' memories of the user may be in the prompt.

    `openwebui_tools` are the tools that Open WebUI would give to a model in this chat; the agent chooses among them.
    `openwebui_features` are the features that the user or the preset has switched on there: `web_search`,
    `image_generation`, `code_interpreter`, `memory`, `skills`.
    `approvals_wait`: whether an approval that nobody gives in time waits instead of ending its call; the run is parked
    meanwhile (event `parked`). Only stored runs of agents that other servers can continue can be parked.
    """

    agent: Identifier
    chat_id: Identifier | None = None
    message_id: Identifier | None = None
    user: User | None = None
    messages: Items[ChatMessage] = Field(min_length=1)
    task: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    run_id: RunId | None = None
    functions: Items[OfferedFunction] = Field(default=(), max_length=128)
    must_call: bool = False
    recall: bool = True
    openwebui_tools: Items[OpenWebUITool] = Field(default=(), max_length=512)
    openwebui_features: Items[Name] = Field(default=(), max_length=32)
    approvals_wait: bool = False


class InputAnswer(Wire):
    """The body of `POST /v1/runs/{run_id}/input`.

    A null `value` means that there is no answer. Then `asked` says whether the user saw the question; it is false if
    the client could not show it.
    """

    request_id: RequestId
    value: Any = None
    asked: bool = True


class RunMessage(Wire):
    """The body of `POST /v1/runs/{run_id}/messages`: a text that the user says while the run works."""

    content: Annotated[str, StringConstraints(pattern=r"\S")]


class ToolAnswer(Wire):
    """The `value` of the `InputAnswer` to a `ToolRequest`: the result of the tool, or the `error` of a failed call.

    `files` and `sources` have Open WebUI's form. A null `value` means that the tool did not end in time; with
    `"asked": false`, that it cannot be run.
    """

    text: str = ""
    error: str = ""
    files: Items[dict[str, Any]] = ()
    embeds: Items[str] = ()
    sources: Items[dict[str, Any]] = ()
