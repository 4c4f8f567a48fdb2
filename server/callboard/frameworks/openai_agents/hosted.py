"""Tools that run at OpenAI's end (the Responses API only): their calls come with the answer, already run.

They cannot be held back, but for those of MCP servers, which OpenAI can be told to ask about. So
what the settings want asked about and cannot be is not offered to the model.
"""

from collections.abc import Mapping
from copy import copy
from inspect import isawaitable
from typing import Any, cast

from agents import HostedMCPTool, MCPToolApprovalFunctionResult, MCPToolApprovalRequest, Tool
from openai.types.responses import (
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionShellToolCallOutput,
    ResponseFunctionWebSearch,
    ResponseOutputItem,
    ResponseToolSearchCall,
)
from openai.types.responses.response_function_shell_tool_call_output import Output, OutputOutcomeExit
from openai.types.responses.response_output_item import ImageGenerationCall, McpCall, Program, ProgramOutput

from callboard.calls import ToolCall, ToolResult
from callboard.errors import ToolDenied, ToolError
from callboard.frameworks.openai_agents.hooks import Hooks


def limit_hosted_tool(tool: Tool, hooks: Hooks) -> Tool | None:
    """Return the tool as the run may have it; None where the user is to be asked about it and cannot be."""
    if isinstance(tool, HostedMCPTool):
        return _ask_about(tool, hooks)
    if not hooks.turn.calls.approval.names(tool.name):
        return tool
    hooks.turn.show_status(f"{tool.name} is left out: it runs at the model's end, where you cannot be asked about it")
    return None


def _ask_about(tool: HostedMCPTool, hooks: Hooks) -> HostedMCPTool:
    author = tool.on_approval_request
    wanted = tool.tool_config.get("require_approval", "always")

    async def decide(request: MCPToolApprovalRequest) -> MCPToolApprovalFunctionResult:
        asked = request.data
        turn = hooks.turn
        call_id = hooks.remote_calls[asked.id] = turn.claim(asked.id)
        call = ToolCall(call_id, asked.name, asked.arguments)
        await hooks.start(call)
        is_wanted = _is_wanted(wanted, asked.name)
        if is_wanted and author is not None:
            said = author(request)
            answer = await said if isawaitable(said) else said
            if not answer["approve"]:
                turn.calls.fail(
                    call_id, ToolDenied(answer.get("reason") or "Not run: the agent's own rules refused it.")
                )
                return answer
        if turn.calls.approval.names(asked.name) or (is_wanted and author is None):
            try:
                await turn.calls.approve(call)
            except ToolDenied as denied:
                turn.calls.fail(call_id, denied)
                return {"approve": False, "reason": str(denied)}
        return {"approve": True}

    twin = copy(tool)
    twin.on_approval_request = decide
    if hooks.turn.context.approval.patterns:
        # Which tools the server has is not known here, so it is asked about all, and said yes to those that may run.
        twin.tool_config = {**tool.tool_config, "require_approval": "always"}
    return twin


def _is_wanted(wanted: object, name: str) -> bool:
    """Return whether the agent's author wants calls of that tool asked about."""
    match wanted:
        case "never":
            return False
        case {"never": {"tool_names": list(names)}} if name in names:
            return False
        case {"always": {"tool_names": list(names)}}:
            return name in names
        case _:
            return True


def read_hosted_call(
    item: ResponseOutputItem, asked: Mapping[str, str]
) -> tuple[ToolCall, ToolResult | ToolError | None] | None:
    """Return the call that a part of an answer is, and how it ended; None for all that is none of these.

    Where the end is a part of its own, `read_hosted_end` has it, and here it is None. `asked` are the ids of calls
    that OpenAI asked about, by its requests' ids.
    """
    match item:
        case ResponseFunctionWebSearch():
            action = item.action.model_dump(exclude_none=True) if item.action else {}
            return ToolCall(item.id, "web_search", action), _end(item.status, "searched")
        case ResponseFileSearchToolCall():
            found = "\n\n".join(f"{one.filename}: {one.text}" for one in item.results or ())
            return ToolCall(item.id, "file_search", {"queries": item.queries}), _end(item.status, found)
        case ResponseCodeInterpreterToolCall():
            outputs = item.outputs or ()
            logs = "\n".join(one.logs for one in outputs if one.type == "logs")
            plots = tuple({"type": "image", "url": one.url} for one in outputs if one.type == "image")
            return ToolCall(item.id, "code_interpreter", {"code": item.code or ""}), _end(item.status, logs, plots)
        case ImageGenerationCall():
            drawn = ({"type": "image", "url": f"data:image/png;base64,{item.result}"},) if item.result else ()
            return ToolCall(item.id, "image_generation", {}), _end(item.status, "drawn", drawn)
        case McpCall():
            call = ToolCall(asked.get(item.approval_request_id or "", item.id), item.name, item.arguments)
            return call, ToolError(item.error.model_dump_json()) if item.error else ToolResult(item.output or "")
        case Program():
            return ToolCall(item.call_id, "programmatic_tool_calling", {"code": item.code}), None
        case ResponseToolSearchCall():
            searched = cast(Mapping[str, Any], item.arguments) if isinstance(item.arguments, dict) else {}
            return ToolCall(item.call_id or item.id, "tool_search", searched), ToolResult("searched")
        case ResponseFunctionShellToolCall():
            return ToolCall(item.call_id, "shell", item.action.model_dump(exclude_none=True)), None
        case _:
            return None


def read_hosted_end(item: ResponseOutputItem) -> tuple[str, ToolResult] | None:
    """Return the id of the call whose end a part of an answer is, and its result; None where it is none."""
    match item:
        case ProgramOutput():
            return item.call_id, ToolResult(item.result)
        case ResponseFunctionShellToolCallOutput():
            return item.call_id, ToolResult("\n".join(map(_format_output, item.output)))
        case _:
            return None


def _end(status: str, text: str, files: tuple[dict[str, Any], ...] = ()) -> ToolResult | ToolError:
    if status == "failed":
        return ToolError("It failed at the model's end, which does not say why.")
    return ToolResult(text, files=files)


def _format_output(output: Output) -> str:
    code = output.outcome.exit_code if isinstance(output.outcome, OutputOutcomeExit) else None
    end = "out of time" if code is None else f"exit code {code}"
    return "\n".join(filter(None, (output.stdout.rstrip(), output.stderr.rstrip(), end)))
