"""Tools that OpenAI runs (Responses API only). Their calls arrive with the answer, already run.

They cannot be delayed for an approval, except tools of MCP servers, for which OpenAI can be told to ask. Other tools
that the settings require approval for are therefore not offered to the model.
"""

from collections.abc import Mapping
from copy import copy
from inspect import isawaitable
from typing import Any, cast

from agents import HostedMCPTool, MCPToolApprovalFunctionResult, MCPToolApprovalRequest, Tool
from openai.types.responses import (
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputItem,
    ResponseToolSearchCall,
)
from openai.types.responses.response_output_item import ImageGenerationCall, McpCall

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolDenied, ToolError
from callboard.frameworks.openai_agents.hooks import AgentsHooks


def hook_hosted_tool(tool: Tool, hooks: AgentsHooks) -> Tool | None:
    """Return the tool with its approval policy applied, or None if it requires approval and cannot be delayed."""
    if isinstance(tool, HostedMCPTool):
        return _hook_mcp_tool(tool, hooks)
    if not hooks.turn.calls.approval.names(tool.name):
        return tool
    hooks.turn.show_status(f"{tool.name} is left out: OpenAI runs it, so you cannot be asked first")
    return None


def _hook_mcp_tool(tool: HostedMCPTool, hooks: AgentsHooks) -> HostedMCPTool:
    author = tool.on_approval_request
    policy = tool.tool_config.get("require_approval", "always")
    label = tool.tool_config["server_label"]

    async def decide(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
        approval_request = request.data
        turn = hooks.turn
        call_id = hooks.remote_calls[approval_request.id] = turn.claim_call_id(approval_request.id)
        call = ToolCall(call_id, approval_request.name, approval_request.arguments)
        await hooks.start(call)
        needs_approval = _author_requires_approval(policy, approval_request.name)
        if needs_approval and author is not None:
            returned = author(request)
            answer = await returned if isawaitable(returned) else returned
            if not answer["approve"]:
                turn.calls.fail(
                    call_id, ToolDenied(answer.get("reason") or "Not run: the agent's own rules refused it.")
                )
                return answer
        if turn.calls.approval.names(approval_request.name) or (needs_approval and author is None):
            try:
                # With a reason, so that it cannot be allowed always: nothing but its name is known here.
                await turn.calls.approve(call, reason=f"A tool of the MCP server '{label}', which OpenAI runs.")
            except ToolDenied as denied:
                turn.calls.fail(call_id, denied)
                return {"approve": False, "reason": str(denied)}
        return {"approve": True}

    hooked = copy(tool)
    hooked.on_approval_request = decide
    if hooks.turn.context.approval.patterns:
        # The server's tools are unknown here, so OpenAI must ask about every call, and `decide` approves those that may
        # run.
        hooked.tool_config = {**tool.tool_config, "require_approval": "always"}
    return hooked


def _author_requires_approval(policy: object, name: str) -> bool:
    """Return whether the agent's author requires approval for calls of that tool."""
    match policy:
        case "never":
            return False
        case {"never": {"tool_names": list(names)}} if name in names:
            return False
        case {"always": {"tool_names": list(names)}}:
            return name in names
        case _:
            return True


def read_hosted_call(
    item: ResponseOutputItem, approval_call_ids: Mapping[str, str]
) -> tuple[ToolCall, ToolResult | ToolError] | None:
    """Return the call that an item of an answer is, and its outcome; None for items that are not hosted calls.

    `approval_call_ids` maps the ids of OpenAI's approval requests to call ids.
    """
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
        case McpCall():
            call = ToolCall(approval_call_ids.get(item.approval_request_id or "", item.id), item.name, item.arguments)
            return call, ToolError(item.error.model_dump_json()) if item.error else ToolResult(item.output or "")
        case ResponseToolSearchCall():
            searched = cast(Mapping[str, Any], item.arguments) if isinstance(item.arguments, dict) else {}
            return ToolCall(item.call_id or item.id, "tool_search", searched), ToolResult("searched")
        case _:
            return None


def _to_outcome(status: str, text: str, files: tuple[dict[str, Any], ...] = ()) -> ToolResult | ToolError:
    if status == "failed":
        return ToolError("It failed at OpenAI, without a reason.")
    return ToolResult(text, files=files)
