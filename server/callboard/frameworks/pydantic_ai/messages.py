"""Converts a conversation to pydantic-ai's messages, and its tool results and files to Callboard's."""

from collections.abc import Sequence
from dataclasses import replace
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

from callboard.calls import ToolResult
from callboard.data_urls import read_data_url
from callboard.errors import ToolError
from callboard.models import ChatDict, with_valid_arguments
from callboard.models.messages import content_text

Prompt = str | list[UserContent]

_KINDS = {ImageUrl: "image", AudioUrl: "audio", VideoUrl: "video", DocumentUrl: "file"}


def to_conversation(messages: Sequence[ChatDict]) -> tuple[Prompt | None, list[ModelMessage], str]:
    """Convert a conversation, with its tool calls and results. Every call's arguments are JSON.

    Return the last message if the user wrote it, the messages before it, and the text of the client's system messages.
    """
    prompt = None
    history: list[ModelMessage] = []
    instructions = []
    names: dict[str, str] = {}
    native = with_valid_arguments(messages)
    if native and native[-1]["role"] == "user":
        prompt = _user_content(native.pop().get("content"))
    for message in native:
        content = message.get("content")
        match message["role"]:
            case "assistant":
                names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
                if (answer := to_answer(message)).parts:
                    history.append(answer)
            case "tool":
                call_id = message["tool_call_id"]
                result = ToolReturnPart(names.get(call_id, ""), content_text(content), call_id)
                history.append(ModelRequest([result]))
            case "user":
                history.append(ModelRequest([UserPromptPart(_user_content(content))]))
            case _:
                instructions.append(content_text(content).strip())
    return prompt, history, "\n\n".join(filter(None, instructions))


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


def to_tool_result(value: Any, more: object = ()) -> ToolResult:
    """Convert a tool's return value, with the text that pydantic-ai sends to the model.

    `more` are further contents for the model. Raises `ToolError` if the value cannot be written as JSON.
    """
    if isinstance(value, ToolReturn):
        return to_tool_result(value.return_value, value.content)
    # pydantic-ai does not find the media in a tuple: https://github.com/pydantic/pydantic-ai/issues/3109
    part = ToolReturnPart("", list(value) if isinstance(value, tuple) else value)
    try:
        text = part.model_response_str()
    except PydanticSerializationError as error:
        raise ToolError(f"It returned a value that cannot be written as JSON: {error}") from error
    contents = [*part.files, *(more if isinstance(more, Sequence) else ())]
    return ToolResult(text, files=tuple(file for content in contents if (file := to_file(content)) is not None))


def to_answer(message: ChatDict) -> ModelResponse:
    """Convert an answer of the model."""
    text = content_text(message.get("content"))
    calls = [
        ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in message.get("tool_calls") or ()
    ]
    return ModelResponse([*([TextPart(text)] if text else []), *calls])


def _user_content(content: object) -> Prompt:
    if not isinstance(content, list):
        return content_text(content)
    contents: list[UserContent] = []
    for part in content:
        match part:
            case {"type": "text", "text": str(text)}:
                contents.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                contents += _read_image(url)
    return contents


def _read_image(url: str) -> list[UserContent]:
    """Return a picture from a web address or a `data:` URL, or nothing if the latter is unreadable."""
    if not url.startswith("data:"):
        return [ImageUrl(url)]
    try:
        data = read_data_url(url)
    except ValueError:
        return []
    return [BinaryContent(data.content, media_type=data.content_type)]


def to_file(content: object) -> dict[str, Any] | None:
    """Return a picture or another file as Open WebUI shows it; None for other content."""
    match content:
        case BinaryContent():
            kind = content.media_type.partition("/")[0]
            return {"type": kind if kind in _KINDS.values() else "file", "url": content.data_uri}
        case ImageUrl() | AudioUrl() | VideoUrl() | DocumentUrl():
            return {"type": _KINDS[type(content)], "url": content.url}
        case _:
            return None
