"""Converts a conversation to AG-UI's messages."""

from collections.abc import Sequence
from typing import Any

from callboard.data_urls import content_type_of
from callboard.models import ChatDict, with_valid_arguments
from callboard.models.messages import content_text


def to_messages(conversation: Sequence[ChatDict], run_id: str) -> list[dict[str, Any]]:
    """Return the messages; each keeps its id in all requests of the run, and no other run has it."""
    messages = []
    for number, message in enumerate(with_valid_arguments(conversation)):
        content = message.get("content")
        sent = {"id": f"{run_id}-{number}", "role": message["role"], "content": content_text(content)}
        if isinstance(content, list) and (
            pictures := [_to_picture(part["image_url"]["url"]) for part in content if part.get("type") == "image_url"]
        ):
            sent["content"] = [{"type": "text", "text": sent["content"]}, *pictures]
        if calls := message.get("tool_calls"):
            sent["toolCalls"] = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
        if "tool_call_id" in message:
            sent["toolCallId"] = message["tool_call_id"]
        messages.append(sent)
    return messages


def _to_picture(url: str) -> dict[str, Any]:
    if content_type := content_type_of(url):
        source = {"type": "data", "value": url.partition(",")[2], "mimeType": content_type}
    else:
        source = {"type": "url", "value": url}
    return {"type": "image", "source": source}
