"""A conversation as pydantic-ai's messages, and what its tools give back."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_core import PydanticSerializationError

from callboard._data_urls import read_data_url
from callboard._formats import NativeFormat
from callboard.calls import ToolResult
from callboard.errors import ToolError
from callboard.models import ChatDict, content_text

Prompt = str | list[UserContent]

_KINDS = {ImageUrl: "image", AudioUrl: "audio", VideoUrl: "video", DocumentUrl: "file"}


@dataclass(slots=True)
class Conversation:
    """The messages that came before, the last one where it is the user's, and what the client's system messages say."""

    history: list[ModelMessage] = field(default_factory=list)
    prompt: Prompt | None = None
    instructions: str = ""


def to_conversation(messages: Sequence[ChatDict]) -> Conversation:
    """Return the conversation with its tool calls and results; every call's arguments are JSON."""
    told = Conversation()
    names: dict[str, str] = {}
    said = list(NativeFormat().request(messages, ()).messages)
    if said and said[-1]["role"] == "user":
        told.prompt = _user_content(said.pop().get("content"))
    instructions = []
    for message in said:
        content = message.get("content")
        match message["role"]:
            case "assistant":
                calls = message.get("tool_calls") or ()
                names |= {call["id"]: call["function"]["name"] for call in calls}
                _respond(told.history, content_text(content), calls)
            case "tool":
                call_id = message["tool_call_id"]
                result = ToolReturnPart(names.get(call_id, ""), content_text(content), call_id)
                told.history.append(ModelRequest([result]))
            case "user":
                told.history.append(ModelRequest([UserPromptPart(_user_content(content))]))
            case _:
                instructions.append(content_text(content).strip())
    told.instructions = "\n\n".join(filter(None, instructions))
    return told


def without_system_prompts(messages: Sequence[ModelMessage]) -> tuple[list[str], list[ModelMessage]]:
    """Return the texts of the system prompts, and the messages without them."""
    prompts: list[str] = []
    others: list[ModelMessage] = []
    for message in messages:
        if not isinstance(message, ModelRequest):
            others.append(message)
            continue
        prompts += [part.content for part in message.parts if isinstance(part, SystemPromptPart)]
        kept = [part for part in message.parts if not isinstance(part, SystemPromptPart)]
        others.append(replace(message, parts=kept))
    return prompts, others


def result_of(value: Any, more: object = ()) -> ToolResult:
    """Return what a tool returned as the model is told it; `more` is what it is told besides.

    Raises `ToolError` where no model can be told.
    """
    if isinstance(value, ToolReturn):
        return result_of(value.return_value, value.content)
    # Of a tuple pydantic-ai does not find the media: https://github.com/pydantic/pydantic-ai/issues/3109
    part = ToolReturnPart("", list(value) if isinstance(value, tuple) else value)
    try:
        text = part.model_response_str()
    except PydanticSerializationError as error:
        raise ToolError(f"It returned what cannot be JSON: {error}") from error
    contents = [*part.files, *(more if isinstance(more, Sequence) else ())]
    return ToolResult(text, files=tuple(file for content in contents if (file := file_of(content)) is not None))


def _respond(history: list[ModelMessage], text: str, calls: Sequence[ChatDict]) -> None:
    said = [TextPart(text)] if text else []
    asked = [ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"]) for call in calls]
    if said or asked:
        history.append(ModelResponse([*said, *asked]))


def _user_content(content: object) -> Prompt:
    if not isinstance(content, list):
        return content_text(content)
    told: list[UserContent] = []
    for part in content:
        match part:
            case {"type": "text", "text": str(text)}:
                told.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                told += _image(url)
    return told


def _image(url: str) -> list[UserContent]:
    """Return a picture at a web address or in a `data:` URL; nothing where it cannot be read."""
    if not url.startswith("data:"):
        return [ImageUrl(url)]
    try:
        data = read_data_url(url)
    except ValueError:
        return []
    return [BinaryContent(data.content, media_type=data.content_type)]


def file_of(content: object) -> dict[str, Any] | None:
    """Return a picture or another file as Open WebUI shows it; None for all else."""
    match content:
        case BinaryContent():
            kind = content.media_type.partition("/")[0]
            return {"type": kind if kind in _KINDS.values() else "file", "url": content.data_uri}
        case ImageUrl() | AudioUrl() | VideoUrl() | DocumentUrl():
            return {"type": _KINDS[type(content)], "url": content.url}
        case _:
            return None
