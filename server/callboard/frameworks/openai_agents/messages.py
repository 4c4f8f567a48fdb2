"""A conversation as items of the Responses API, which the SDK speaks with every model, and tools' results from them."""

import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agents import ItemHelpers, TResponseInputItem
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.tool_context import ToolContext

from callboard._formats import NativeFormat
from callboard.calls import ToolResult
from callboard.models import ChatDict, content_text

Item = dict[str, Any]


def to_items(messages: Sequence[ChatDict]) -> tuple[list[TResponseInputItem], str]:
    """Return what was said and done, with the tool calls and their results, and what the client's system messages say.

    Every call's arguments are JSON.
    """
    items: list[Item] = []
    instructions = []
    for message in NativeFormat().request(messages, ()).messages:
        content = message.get("content")
        match message["role"]:
            case "assistant":
                items += _write_answer(content_text(content), message.get("tool_calls") or ())
            case "tool":
                output = content_text(content)
                items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
            case "user":
                items.append({"role": "user", "content": _write_question(content)})
            case _:
                instructions.append(content_text(content).strip())
    return cast(list[TResponseInputItem], items), "\n\n".join(filter(None, instructions))


def count_messages(items: str | Sequence[TResponseInputItem]) -> int:
    """Return how many messages of a chat the items are: a text and the calls after it are one, as are their calls."""
    if isinstance(items, str):
        return 1
    count = 0
    in_answer = False
    for item in cast(Sequence[Mapping[str, Any]], items):
        if item.get("type") == "reasoning":
            continue
        is_call = "call_id" in item and not str(item.get("type")).endswith("_output")
        count += not (is_call and in_answer)
        in_answer = is_call or item.get("role") == "assistant"
    return count


def result_of(context: ToolContext[Any], result: object) -> ToolResult:
    """Return what a tool gave, as the SDK tells it to the model."""
    assert context.tool_call is not None, "a tool is called"
    return output_of(ItemHelpers.tool_call_output_item(context.tool_call, result)["output"])


def output_of(output: str | Sequence[Mapping[str, Any]]) -> ToolResult:
    """Return a tool's output, as the SDK sends it, as text and files."""
    if isinstance(output, str):
        return ToolResult(output)
    texts = [part["text"] for part in output if part.get("type") == "input_text"]
    texts += [text for part in output for text in (part.get("stdout"), part.get("stderr")) if text]
    files = [file for part in output if (file := _read_file(part)) is not None]
    return ToolResult("\n".join(texts), files=tuple(files))


def _write_answer(text: str, calls: Sequence[ChatDict]) -> list[Item]:
    # In the long form, without which a text and the calls that follow it would not be one message.
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "type": "message",
        "role": "assistant",
        "id": FAKE_RESPONSES_ID,
        "status": "completed",
        "content": [part],
    }
    asked: list[Item] = [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for call in calls
    ]
    return [message, *asked] if text else asked


def _write_question(content: object) -> str | list[Item]:
    if not isinstance(content, list):
        return content_text(content)
    parts: list[Item] = []
    for part in content:
        match part:
            case {"type": "text", "text": str(text)}:
                parts.append({"type": "input_text", "text": text})
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts


def _read_file(part: Mapping[str, Any]) -> Item | None:
    """Return a file that has an address or a content; those of OpenAI's own storage have neither."""
    name = part.get("filename") or ""
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image", "url": url}
        case {"type": "input_file", "file_url": str(url)}:
            pass
        case {"type": "input_file", "file_data": str(url)}:
            if not url.startswith("data:"):
                url = f"data:{mimetypes.guess_type(name)[0] or 'application/octet-stream'};base64,{url}"
        case _:
            return None
    return {"type": "file", "url": url, **({"name": name} if name else {})}
