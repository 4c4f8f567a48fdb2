"""Conversations in the form that OpenTelemetry's conventions require for attributes: messages with parts, as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.models import (
    CallJoiner,
    ChatDict,
    Finish,
    ModelDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)

Part = dict[str, Any]


def system_parts(messages: Sequence[ChatDict]) -> list[Part]:
    """Return the parts of the system prompt."""
    return [part for message in messages if _is_system(message) for part in _content_parts(message.get("content"))]


def input_messages(messages: Sequence[ChatDict]) -> list[dict[str, Any]]:
    """Return the messages of a request to a model, without the system prompt."""
    return [{"role": message.get("role"), "parts": _parts(message)} for message in messages if not _is_system(message)]


def output_messages(deltas: Sequence[ModelDelta]) -> list[dict[str, Any]]:
    """Return a model's answer, which is one message."""
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta | RefusalDelta))
    parts: list[Part] = []
    if thought:
        parts.append({"type": "reasoning", "content": thought})
    if text:
        parts.append({"type": "text", "content": text})
    joiner = CallJoiner()
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            joiner.add(delta)
    parts += [_call_part(call.given_id or None, call.name, call.arguments) for call in joiner.calls]
    reasons = [delta.reason for delta in deltas if isinstance(delta, Finish)]
    return [{"role": "assistant", "parts": parts, "finish_reason": (reasons or [None])[-1] or "stop"}]


def text_message(role: str, text: str, **fields: str) -> list[dict[str, Any]]:
    """Return the question or the answer of a run as a list of one message."""
    return [{"role": role, "parts": [{"type": "text", "content": text}], **fields}]


def as_json(value: object) -> str:
    """Return a value as JSON, because attributes cannot be nested."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_system(message: ChatDict) -> bool:
    return message.get("role") in ("system", "developer")


def _parts(message: ChatDict) -> list[Part]:
    if message.get("role") == "tool":
        result = message.get("content")
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": result}]
    parts = _content_parts(message.get("content"))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts.append(_call_part(call.get("id"), function.get("name"), function.get("arguments")))
    return parts


def _content_parts(content: object) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    pieces = content if isinstance(content, list) else []
    return [_content_part(piece) for piece in pieces if isinstance(piece, Mapping)]


def _content_part(piece: Mapping[str, Any]) -> Part:
    if piece.get("type") == "text":
        return {"type": "text", "content": piece.get("text", "")}
    # Pictures and recordings are too large for a span.
    return {"type": str(piece.get("type"))}


def _call_part(call_id: object, name: object, arguments: object) -> Part:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
