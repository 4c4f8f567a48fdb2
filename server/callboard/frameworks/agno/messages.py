"""A conversation as Agno's messages."""

from collections.abc import Sequence
from itertools import takewhile

from agno.media import Image
from agno.models.message import Message

from callboard.formats import NativeFormat
from callboard.frameworks.agno.media import image_of
from callboard.models import ChatDict, content_text

SYSTEM_ROLES = ("system", "developer")


def to_messages(conversation: Sequence[ChatDict]) -> list[Message]:
    """The conversation with its tool calls and results; every call's arguments are JSON."""
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
                images=_images(said.get("content")) or None,
            )
        )
    return messages


def with_one_system_message(messages: Sequence[Message]) -> list[Message]:
    """The messages with the agent's own instructions and what the client put first as one message.

    Many chat templates refuse a second.
    """
    own = list(takewhile(lambda message: message.role in SYSTEM_ROLES, messages))
    if len(own) < 2:
        return list(messages)
    parts = [text for message in own if (text := message.get_content_string().strip())]
    return [own[0].model_copy(update={"content": "\n\n".join(parts)}), *messages[len(own) :]]


def _images(content: object) -> list[Image]:
    parts = content if isinstance(content, list) else []
    urls = [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]
    return [image for url in urls if (image := image_of(url)) is not None]
