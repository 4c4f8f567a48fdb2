"""Converts a conversation to AG-UI's messages."""

from collections.abc import Sequence
from typing import Any

from callboard.data_urls import content_type_of
from callboard.models import ChatDict, with_valid_arguments
from callboard.models.messages import content_text


def to_messages(conversation: Sequence[ChatDict], run_id: str) -> list[dict[str, Any]]:
    """Return the messages; each keeps its id in all requests of the run, and no other run has it."""
    messages = enumerate(with_valid_arguments(conversation))
    return [_to_message(message, f"{run_id}-{number}") for number, message in messages]


def _to_message(message: ChatDict, message_id: str) -> dict[str, Any]:
    content = message.get("content")
    sent = {"id": message_id, "role": message["role"], "content": content_text(content)}
    match message:
        case {"role": "user"} if isinstance(content, list) and (
            pictures := list(filter(None, map(_read_picture, content)))
        ):
            sent["content"] = [{"type": "text", "text": sent["content"]}, *pictures]
        case {"role": "assistant", "tool_calls": [*calls]}:
            sent["toolCalls"] = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
        case {"role": "tool", "tool_call_id": call_id}:
            sent["toolCallId"] = call_id
    return sent


def _read_picture(part: object) -> dict[str, Any] | None:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            if content_type := content_type_of(url):
                data = {"type": "data", "value": url.partition(",")[2], "mimeType": content_type}
                return {"type": "image", "source": data}
            return {"type": "image", "source": {"type": "url", "value": url}}
    return None
