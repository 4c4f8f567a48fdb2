"""Converts a conversation to items of the Responses API, the SDK's form for every model, and reads tools' outputs.

The calls of tools that OpenAI runs (Responses API only) arrive with the answer, already run.
"""

import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agents import ItemHelpers, TResponseInputItem
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.tool_context import ToolContext
from openai.types.responses import (
    Response,
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputItem,
)
from openai.types.responses.response_output_item import ImageGenerationCall

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolError
from callboard.models import ChatDict, with_valid_arguments
from callboard.models.messages import content_text

Item = dict[str, Any]


def to_items(messages: Sequence[ChatDict]) -> tuple[list[TResponseInputItem], str]:
    """Return a conversation as items, with its tool calls and results, and the text of the client's system messages.

    Every call's arguments are JSON.
    """
    items: list[Item] = []
    instructions = []
    for message in with_valid_arguments(messages):
        content = message.get("content")
        match message["role"]:
            case "assistant":
                items += _to_answer_items(content_text(content), message.get("tool_calls") or ())
            case "tool":
                output = content_text(content)
                items.append({"type": "function_call_output", "call_id": message["tool_call_id"], "output": output})
            case "user":
                items.append({"role": "user", "content": _to_question_content(content)})
            case _:
                instructions.append(content_text(content).strip())
    return cast(list[TResponseInputItem], items), "\n\n".join(filter(None, instructions))


def to_response(message: ChatDict) -> Response:
    """Return an answer of the model as the model gave it."""
    items, _ = to_items([message])
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    answer = {"id": FAKE_RESPONSES_ID, "object": "response", "created_at": 0, "model": "", "output": items, **settings}
    return Response.model_validate(answer)


def count_messages(items: str | Sequence[TResponseInputItem]) -> int:
    """Return the number of chat messages that the items form. A text and the calls after it are one message."""
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


def to_tool_result(context: ToolContext[Any], result: object) -> ToolResult:
    """Convert a tool's return value, as the SDK sends it to the model."""
    assert context.tool_call is not None, "a tool is called"
    return read_output(ItemHelpers.tool_call_output_item(context.tool_call, result)["output"])


def read_output(output: str | Sequence[Mapping[str, Any]]) -> ToolResult:
    """Return the texts and files of a tool's output in the SDK's form."""
    if isinstance(output, str):
        return ToolResult(output)
    texts = [part["text"] for part in output if part.get("type") == "input_text"]
    files = [file for part in output if (file := _to_file(part)) is not None]
    return ToolResult("\n".join(texts), files=tuple(files))


def _to_answer_items(text: str, calls: Sequence[ChatDict]) -> list[Item]:
    # The long form is needed: in the short form a text and the calls after it become separate messages.
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "type": "message",
        "role": "assistant",
        "id": FAKE_RESPONSES_ID,
        "status": "completed",
        "content": [part],
    }
    call_items: list[Item] = [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for call in calls
    ]
    return [message, *call_items] if text else call_items


def _to_question_content(content: object) -> str | list[Item]:
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


def _to_file(part: Mapping[str, Any]) -> Item | None:
    """Return a file that has an address or content. Files in OpenAI's own storage have neither."""
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


def read_hosted_call(item: ResponseOutputItem) -> tuple[ToolCall, ToolResult | ToolError] | None:
    """Return the call that an item of an answer is, and its outcome; None for items that are not hosted calls."""
    match item:
        case ResponseFunctionWebSearch():
            action = item.action.model_dump(exclude_none=True) if item.action else {}
            return ToolCall(item.id, "web_search", action), _to_outcome(item.status, "searched")
        case ResponseFileSearchToolCall():
            found = "\n\n".join(f"{found_file.filename}: {found_file.text}" for found_file in item.results or ())
            return ToolCall(item.id, "file_search", {"queries": item.queries}), _to_outcome(item.status, found)
        case ResponseCodeInterpreterToolCall():
            outputs = item.outputs or ()
            logs = "\n".join(output.logs for output in outputs if output.type == "logs")
            plots = tuple({"type": "image", "url": output.url} for output in outputs if output.type == "image")
            return ToolCall(item.id, "code_interpreter", {"code": item.code or ""}), _to_outcome(
                item.status, logs, plots
            )
        case ImageGenerationCall():
            drawn = ({"type": "image", "url": f"data:image/png;base64,{item.result}"},) if item.result else ()
            return ToolCall(item.id, "image_generation", {}), _to_outcome(item.status, "drawn", drawn)
        case _:
            return None


def _to_outcome(status: str, text: str, files: tuple[dict[str, Any], ...] = ()) -> ToolResult | ToolError:
    if status == "failed":
        return ToolError("It failed at OpenAI, without a reason.")
    return ToolResult(text, files=files)
