"""The items of a request's input. Pure.

The forms are from https://platform.openai.com/docs/api-reference/responses/create. An item of an unknown type is
refused, because the model would not get its content.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, StringConstraints

from callboard._openai.client_functions import Json
from callboard._openai.items import CLIENTS_ITEM_ID, MCP_ITEM_ID
from callboard._openai.offered_tools import join_name, write_input
from callboard.calls.call import format_error
from callboard.errors import RequestError
from callboard_protocol import ChatMessage, FunctionCall, ToolCallPart
from callboard_protocol.wire import Wire

KeptId = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
"""An id of a stored item; the store has no ids with a NUL character."""


_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"})


class Part(Wire):
    """A part of a message or of a call's output. Its `type` says whether it is text, an image, a file or sound."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    detail: str | None = None
    filename: str | None = None
    file_data: str | None = None
    input_audio: Json | None = None

    def to_chat(self) -> Json:
        """Return the part in the form of chat messages. Raises `RequestError` for a part without content."""
        match self.type:
            case "input_image" if self.image_url:
                detail = {"detail": self.detail} if self.detail else {}
                return {"type": "image_url", "image_url": {"url": self.image_url, **detail}}
            case "input_file" if self.file_data:
                return {"type": "file", "file": {"filename": self.filename, "file_data": self.file_data}}
            case "input_audio" if self.input_audio:
                return {"type": "input_audio", "input_audio": self.input_audio}
            case "input_image":
                raise RequestError("input: an input_image needs its image_url: file_id is not supported")
            case "input_file":
                raise RequestError("input: an input_file needs its file_data: file_id and file_url are not supported")
            case kind if kind in _TEXTS:
                return {"type": "text", "text": self.text or self.refusal}
            case kind:
                raise RequestError(
                    f"input: parts of type {kind!r} are not supported: leave the part out, or send it as text"
                )


def _translate_parts(content: str | tuple[Part, ...]) -> str | list[Json]:
    """Return the content in the form of chat messages: as text if possible, which every model accepts."""
    if isinstance(content, str):
        return content
    parts = [part.to_chat() for part in content]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


class MessageItem(Wire):
    """A message of any role."""

    type: Literal["message"]
    role: Literal["system", "developer", "user", "assistant"]
    content: str | tuple[Part, ...]

    def to_chat(self) -> ChatMessage:
        """Return the message in the form of chat completions. Raises `RequestError` for parts that no model accepts."""
        content = _translate_parts(self.content)
        if self.role == "assistant" and not isinstance(content, str):
            raise RequestError("input: an assistant's message may only have parts that are text")
        return ChatMessage(role=self.role, content=content)


class AgentMessageItem(Wire):
    """A message between two agents of the client, as in Codex."""

    type: Literal["agent_message"]
    author: str = ""
    content: tuple[Part, ...]

    def to_chat(self) -> ChatMessage:
        """Return it as a user message with the name of the author. Raises `RequestError` for an invalid part."""
        name: list[Json] = [{"type": "text", "text": f"Message from the agent {self.author!r}:"}]
        return ChatMessage(role="user", content=[*name, *(part.to_chat() for part in self.content)])


class CallItem(Wire):
    """A call of an earlier answer: `arguments` is JSON text, `input` the free text of a custom tool."""

    type: Literal["function_call", "custom_tool_call"]
    id: str | None = None
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = ""
    input: str | None = None

    @property
    def round_key(self) -> str | None:
        """The key that it shares with the server's calls of the same round, None if there were none."""
        found = CLIENTS_ITEM_ID.fullmatch(self.id or "")
        return found[1] if found else None

    def to_chat(self) -> ToolCallPart:
        """Return the call in the form of chat messages."""
        arguments = self.arguments if self.input is None else write_input(self.input)
        function = FunctionCall(name=join_name(self.namespace, self.name), arguments=arguments)
        return ToolCallPart(id=self.call_id, function=function)


class ClientCallItem(Wire):
    """A call of a tool that OpenAI defines and the client ran, such as its shell."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"]
    call_id: str
    id: Any = None
    status: Any = None

    def to_chat(self) -> ToolCallPart:
        """Return the call as a call of a function with that name."""
        arguments = json.dumps(self.model_extra, ensure_ascii=False)
        function = FunctionCall(name=self.type.removesuffix("_call"), arguments=arguments)
        return ToolCallPart(id=self.call_id, function=function)


class OutputItem(Wire):
    """The output of a call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: str | tuple[Part, ...]

    def to_chat(self) -> ChatMessage:
        """Return the output in the form of chat completions. Raises `RequestError` for parts without content."""
        return ChatMessage(role="tool", tool_call_id=self.call_id, content=_translate_parts(self.output))


class ClientOutputItem(Wire):
    """The output of a `ClientCallItem`: text, or any JSON."""

    type: Literal["local_shell_call_output", "shell_call_output", "apply_patch_call_output", "tool_search_output"]
    # The output of the local shell has the id of the call in `id`.
    call_id: str = Field(validation_alias=AliasChoices("call_id", "id"))
    output: Any = None
    tools: tuple[Any, ...] = ()

    def to_chat(self) -> ChatMessage:
        """Return the output in the form of chat completions; for a tool search, the tools that were found."""
        output = self.output if self.output is not None else list(self.tools)
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        return ChatMessage(role="tool", tool_call_id=self.call_id, content=text)


class McpItem(Wire):
    """A call of an earlier answer that the server ran, with its result; `arguments` is JSON text."""

    type: Literal["mcp_call"]
    id: KeptId
    name: str
    arguments: str = ""
    output: str | None = None
    error: Any = None

    @cached_property
    def place(self) -> tuple[str, int, str]:
        """The key of its round, its place in it, and the call's id; an item of another server is its own round."""
        if found := MCP_ITEM_ID.fullmatch(self.id):
            return found[1], int(found[2]), found[3]
        return self.id, 0, self.id

    @property
    def round_key(self) -> str:
        """The key that it shares with the other calls of its round."""
        return self.place[0]

    @property
    def call_id(self) -> str:
        """The id of the call in its run."""
        return self.place[2]

    def to_chat(self) -> ToolCallPart:
        """Return the call in the form of chat messages, with the arguments as the model wrote them."""
        try:
            read = json.loads(self.arguments)
        except (ValueError, RecursionError):
            read = None
        # Arguments that were not JSON are a JSON string in the item.
        written = read if isinstance(read, str) else self.arguments
        return ToolCallPart(id=self.call_id, function=FunctionCall(name=self.name, arguments=written))

    @property
    def result(self) -> str | None:
        """The result as the model read it, None if the item has none."""
        match self.error:
            case None:
                return self.output
            case str(text):
                return format_error(text)
            case {"content": [*parts]}:
                texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
                return format_error("\n".join(text for text in texts if isinstance(text, str)))
            case {"message": str(text)}:
                return format_error(text)
            case _:
                return format_error(json.dumps(self.error, ensure_ascii=False, default=str))


class ReferenceItem(Wire):
    """The id of an item of an earlier response, in place of the item."""

    type: Literal["item_reference"]
    id: KeptId


class ToolsItem(Wire):
    """Tools that the client offers in addition to the request's field `tools`."""

    type: Literal["additional_tools"]
    tools: tuple[Any, ...]


class OtherItem(Wire):
    """Reasoning, and calls that OpenAI's servers ran: the model does not get them."""

    type: Literal[
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_list_tools",
    ]


def _add_type(item: Any) -> Any:
    """Add the type of a message or a reference, which OpenAI allows to leave out."""
    if isinstance(item, dict) and not item.get("type"):
        return {**item, "type": "message" if "role" in item or "id" not in item else "item_reference"}
    return item


AnyMessage = MessageItem | AgentMessageItem
Call = CallItem | ClientCallItem | McpItem
Output = OutputItem | ClientOutputItem
InputItem = Annotated[
    AnyMessage | Call | Output | ReferenceItem | ToolsItem | OtherItem,
    Field(discriminator="type"),
    BeforeValidator(_add_type),
]
