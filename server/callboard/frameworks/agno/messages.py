"""A conversation as Agno's messages; what its tools give back, and pictures on their way in and out."""

import base64
import mimetypes
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from itertools import takewhile
from pathlib import Path
from typing import Any

from agno.media import Audio, File, Image, Video
from agno.models.message import Message
from agno.team import Team
from agno.tools.function import ToolResult as AgnoResult

from callboard._data_urls import read_data_url
from callboard._formats import NativeFormat
from callboard.calls import ToolResult
from callboard.models import ChatDict, content_text

SYSTEM_ROLES = ("system", "developer")


def to_messages(conversation: Sequence[ChatDict]) -> list[Message]:
    """Return the conversation with its tool calls and results; every call's arguments are JSON."""
    names: dict[str, str] = {}
    messages = []
    for said in NativeFormat().request(conversation, ()).messages:
        calls = said.get("tool_calls")
        names |= {call["id"]: call["function"]["name"] for call in calls or ()}
        call_id = said.get("tool_call_id")
        messages.append(
            Message(
                role=said["role"],
                content=content_text(said.get("content")),
                tool_calls=calls,
                tool_call_id=call_id,
                tool_name=names.get(call_id or ""),
                images=_read_images(said.get("content")) or None,
            )
        )
    return messages


def tell_team(team: Team, messages: Sequence[Message]) -> tuple[Team, Message | None]:
    """Return the team as one that knows a conversation, and its input: the last message, where that is the user's.

    Of a list of messages as its input a team reads the texts of its user, joined, and nothing else.
    """
    asked = messages[-1] if messages[-1].role == "user" else None
    twin = copy(team)
    twin.additional_input = [*(team.additional_input or ()), *(messages[:-1] if asked else messages)]
    return twin, asked


def with_one_system_message(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the agent's own instructions and what the client put first as one message.

    Many chat templates refuse a second.
    """
    own = list(takewhile(lambda message: message.role in SYSTEM_ROLES, messages))
    if len(own) < 2:
        return list(messages)
    parts = [text for message in own if (text := message.get_content_string().strip())]
    return [own[0].model_copy(update={"content": "\n\n".join(parts)}), *messages[len(own) :]]


def _read_images(content: object) -> list[Image]:
    """Return a message's pictures, at a web address or in a `data:` URL, but for those that cannot be read."""
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


def result_of(value: object) -> ToolResult:
    """Return a tool's return value as Agno tells it to the model."""
    if not isinstance(value, AgnoResult):
        return ToolResult(str(value))
    media = [*(value.images or ()), *(value.videos or ()), *(value.audios or ()), *(value.files or ())]
    return ToolResult(value.content, files=tuple(files_of(media)))


def files_of(media: Sequence[Media]) -> list[dict[str, Any]]:
    """Return the media that have an address or a content, each once."""
    urls = {one.id or id(one): (one, url) for one in media if (url := _read_url(one))}
    files = []
    for one, url in urls.values():
        file = {"type": _KINDS[type(one)], "url": url}
        if isinstance(one, File) and (name := one.filename or one.name):
            file["name"] = name
        files.append(file)
    return files


def _read_url(one: Media) -> str | None:
    content = one.content
    if content is None and one.filepath:
        path = Path(one.filepath)
        content = path.read_bytes() if path.is_file() else None
    if isinstance(content, str):
        content = content.encode()
    if not isinstance(content, bytes):
        return one.url
    by_format = mimetypes.guess_type(f"_.{one.format}")[0] if one.format else None
    by_name = mimetypes.guess_type(str(one.filepath))[0] if one.filepath else None
    content_type = one.mime_type or by_format or by_name or _TYPES[type(one)]
    return f"data:{content_type};base64,{base64.b64encode(content).decode()}"
