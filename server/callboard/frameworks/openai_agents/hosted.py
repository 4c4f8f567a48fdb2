"""Tools that OpenAI runs (Responses API only). Their calls arrive with the answer, already run.

They cannot be delayed for an approval. Those that the settings require approval for are not offered to the model.
"""

from typing import Any

from agents import Tool
from openai.types.responses import (
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputItem,
)
from openai.types.responses.response_output_item import ImageGenerationCall

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolError
from callboard.frameworks.openai_agents.hooks import AgentsHooks


def hook_hosted_tool(tool: Tool, hooks: AgentsHooks) -> Tool | None:
    """Return the tool, or None if it requires approval."""
    if not hooks.turn.calls.approval.names(tool.name):
        return tool
    hooks.turn.show_status(f"{tool.name} is left out: OpenAI runs it, so you cannot be asked first")
    return None


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
