"""Tools that run here but are not functions: shells, patches and custom text tools.

The SDK has no error function for them. The text of their exceptions is sent to the model, so failures are detected
where the tools' code runs.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import anyio.to_thread
from agents import (
    ApplyPatchTool,
    CustomTool,
    LocalShellCommandRequest,
    LocalShellTool,
    ShellCommandRequest,
    ShellTool,
    Tool,
)
from agents.editor import ApplyPatchEditor, ApplyPatchOperation, ApplyPatchResult
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseCustomToolCall,
    ResponseFunctionShellToolCall,
    ResponseOutputItem,
)
from openai.types.responses.response_output_item import LocalShellCall
from pydantic import BaseModel

from callboard.calls import ToolCall
from callboard.errors import ToolError
from callboard.frameworks.failures import tool_error
from callboard.frameworks.openai_agents.hooks import Hooks, current_call


def read_local_call(item: ResponseOutputItem, tools: Sequence[Tool]) -> ToolCall | None:
    """Return the call that an item of an answer is, or None if it is not a call of a local tool that is no function.

    Only calls of custom tools contain the name of their tool.
    """
    match item:
        case ResponseCustomToolCall():
            return ToolCall(item.call_id, item.name, {"input": item.input})
        case ResponseFunctionShellToolCall() if name := _find_name(tools, ShellTool):
            return ToolCall(item.call_id, name, _read_arguments(item.action))
        case LocalShellCall() if name := _find_name(tools, LocalShellTool) or _find_name(tools, ShellTool):
            return ToolCall(item.call_id, name, _read_arguments(item.action))
        case ResponseApplyPatchToolCall() if name := _find_name(tools, ApplyPatchTool):
            return ToolCall(item.call_id, name, _read_arguments(item.operation))
        case _:
            return None


def _find_name(tools: Sequence[Tool], kind: type[Tool]) -> str:
    """Return the name of the tool of this class that runs here, or an empty text."""
    # OpenAI runs a shell without an executor.
    return next(
        (tool.name for tool in tools if isinstance(tool, kind) and getattr(tool, "executor", True) is not None), ""
    )


def hook_local_tool(tool: Tool, hooks: Hooks) -> Tool:
    """Return the tool with its calls run within the server's limits, after the user's approval if that is required."""
    hooked = copy(tool)
    match hooked:
        case ShellTool() if (run := hooked.executor) is not None:
            hooked.needs_approval = _make_approval_policy(hooks, hooked)

            async def run_shell(request: ShellCommandRequest) -> Any:
                return await _run(hooks, request.data.call_id, run, request)

            hooked.executor = run_shell
        case LocalShellTool():
            execute = hooked.executor

            async def run_local_shell(request: LocalShellCommandRequest) -> str:
                try:
                    return str(await _run(hooks, request.data.call_id, execute, request))
                except ToolError as error:
                    # Only for this class the SDK ends the run on an exception, instead of sending it to the model.
                    return str(error)

            hooked.executor = run_local_shell
        case ApplyPatchTool():
            hooked.needs_approval = _make_approval_policy(hooks, hooked)
            hooked.editor = _HookedEditor(hooks, hooked.editor)
        case CustomTool():
            invoke = hooked.on_invoke_tool
            hooked.needs_approval = _make_approval_policy(hooks, hooked)

            async def run_custom(context: ToolContext[Any], text: str) -> Any:
                return await _run(hooks, context.tool_call_id, invoke, context, text)

            hooked.on_invoke_tool = run_custom
        case _:
            return tool
    return hooked


def _make_approval_policy(hooks: Hooks, tool: ShellTool | ApplyPatchTool | CustomTool) -> Callable[..., Any]:
    """Return a policy that asks the user through the call wherever the author's policy requires approval.

    If a function of the author answers (`on_approval`), the policy is the author's.
    """
    policy: Any = tool.needs_approval
    asks_user = tool.on_approval is None

    async def needs_approval(context: Any, action: Any, call_id: str) -> bool:
        # The SDK does not pass the id to the editor of a patch.
        current_call.set(call_id)
        needed = policy(context, action, call_id) if callable(policy) else policy
        needed = bool(await needed if inspect.isawaitable(needed) else needed)
        if needed and asks_user:
            hooks.must_ask.add(call_id)
        return needed and not asks_user

    return needs_approval


async def _run(hooks: Hooks, call_id: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the tool's result. Raises `ToolError` with a message for the model."""

    async def perform() -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        # In a thread, because it may block: then it blocks nothing else and can be abandoned.
        result = await anyio.to_thread.run_sync(partial(function, *arguments), abandon_on_cancel=True)
        return await result if inspect.isawaitable(result) else result

    current_call.set(call_id)
    try:
        return await hooks.run(call_id, perform)
    except Exception as raised:  # noqa: BLE001 - foreign code: a tool may raise anything, and the run goes on
        error = tool_error(raised)
    hooks.fail(call_id, error)
    raise ToolError(hooks.turn.mask(f"Error: {error}"))


class _HookedEditor(ApplyPatchEditor):
    """The author's editor, whose operations run as calls within the limits."""

    def __init__(self, hooks: Hooks, editor: ApplyPatchEditor) -> None:
        self._hooks = hooks
        self._editor = editor

    async def create_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._apply(self._editor.create_file, operation)

    async def update_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._apply(self._editor.update_file, operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._apply(self._editor.delete_file, operation)

    async def _apply(self, apply: Callable[..., Any], operation: ApplyPatchOperation) -> Any:
        call_id = current_call.get("")
        result = await _run(self._hooks, call_id, apply, operation)
        match result:
            case ApplyPatchResult(status="failed", output=output):
                pass
            case {"status": "failed"}:
                output = result.get("output")
            case _:
                return result
        self._hooks.fail(call_id, ToolError(str(output or "The editor could not apply the patch.")))
        return result


def _read_arguments(action: BaseModel | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(action, BaseModel):
        return action.model_dump(exclude_none=True)
    return action
