"""Converts a conversation to Agno's messages, and Agno's tool results and media to Callboard's."""

import base64
import mimetypes
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from itertools import takewhile
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.media import Audio, File, Image, Video
from agno.models.message import Message
from agno.team import Team
from agno.tools.function import ToolResult as AgnoResult

from callboard.calls import ToolResult
from callboard.data_urls import read_data_url
from callboard.models import ChatDict, with_valid_arguments
from callboard.models.messages import content_text

SYSTEM_ROLES = ("system", "developer")


def to_messages(conversation: Sequence[ChatDict]) -> list[Message]:
    """Convert a conversation, with its tool calls and results. Every call's arguments are JSON."""
    names: dict[str, str] = {}
    messages = []
    for message in with_valid_arguments(conversation):
        calls = message.get("tool_calls")
        names |= {call["id"]: call["function"]["name"] for call in calls or ()}
        call_id = message.get("tool_call_id")
        messages.append(
            Message(
                role=message["role"],
                content=content_text(message.get("content")),
                tool_calls=calls,
                tool_call_id=call_id,
                tool_name=names.get(call_id or ""),
                images=_read_images(message.get("content")) or None,
            )
        )
    return messages


def add_history(agent: Agent | Team, messages: Sequence[Message]) -> tuple[Agent | Team, dict[str, Any]]:
    """Return a copy that knows the conversation, and the rest of its input: the words and pictures of the last message.

    Only a text is an input that Agno's hooks, guards, knowledge and dependencies can read and change. It is None if the
    last message is not the user's.
    """
    last = messages[-1]
    is_question = last.role == "user"
    agent_copy = copy(agent)
    agent_copy.additional_input = [*(agent.additional_input or ()), *(messages[:-1] if is_question else messages)]
    return agent_copy, {"input": last.content, "images": last.images} if is_question else {"input": None}


def merge_system_messages(messages: Sequence[Message]) -> list[Message]:
    """Merge the agent's own system messages and the client's, which come first, into one.

    Many chat templates refuse a second system message.
    """
    own = list(takewhile(lambda message: message.role in SYSTEM_ROLES, messages))
    if len(own) < 2:
        return list(messages)
    parts = [text for message in own if (text := message.get_content_string().strip())]
    return [own[0].model_copy(update={"content": "\n\n".join(parts)}), *messages[len(own) :]]


def _read_images(content: object) -> list[Image]:
    """Return the pictures of a message, from web addresses and `data:` URLs. Unreadable `data:` URLs are left out."""
    images: list[Image] = []
    for part in content if isinstance(content, list) else ():
        match part:
            case {"type": "image_url", "image_url": {"url": str(url)}} if not url.startswith("data:"):
                images.append(Image(url=url))
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                with suppress(ValueError):
                    data = read_data_url(url)
                    kind = data.content_type.partition("/")[2]
                    images.append(Image(content=data.content, mime_type=data.content_type, format=kind))
    return images


Media = Image | Audio | Video | File

_KINDS = {Image: "image", Audio: "audio", Video: "video", File: "file"}
_TYPES = {Image: "image/png", Audio: "audio/wav", Video: "video/mp4", File: "application/octet-stream"}


def to_tool_result(value: object) -> ToolResult:
    """Convert a tool's return value, with the text that Agno sends to the model."""
    if not isinstance(value, AgnoResult):
        return ToolResult(str(value))
    media = [*(value.images or ()), *(value.videos or ()), *(value.audios or ()), *(value.files or ())]
    return ToolResult(value.content, files=tuple(to_files(media)))


def to_files(media: Sequence[Media]) -> list[dict[str, Any]]:
    """Return the media that have an address or content, without duplicates."""
    urls = {medium.id or id(medium): (medium, url) for medium in media if (url := _read_url(medium))}
    files = []
    for medium, url in urls.values():
        file = {"type": _KINDS[type(medium)], "url": url}
        if isinstance(medium, File) and (name := medium.filename or medium.name):
            file["name"] = name
        files.append(file)
    return files


def _read_url(medium: Media) -> str | None:
    content = medium.content
    if content is None and medium.filepath:
        path = Path(medium.filepath)
        content = path.read_bytes() if path.is_file() else None
    if isinstance(content, str):
        content = content.encode()
    if not isinstance(content, bytes):
        return medium.url
    by_format = mimetypes.guess_type(f"_.{medium.format}")[0] if medium.format else None
    by_name = mimetypes.guess_type(str(medium.filepath))[0] if medium.filepath else None
    content_type = medium.mime_type or by_format or by_name or _TYPES[type(medium)]
    return f"data:{content_type};base64,{base64.b64encode(content).decode()}"
