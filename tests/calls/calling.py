"""Runs a tool as the loop does: its arguments checked first, then in its time."""

from typing import Any

from callboard.calls import Tool, ToolContext, ToolResult
from callboard.calls.executor import check_arguments, execute


async def run_tool(tool: Tool, context: ToolContext, timeout_seconds: float = 20, /, **arguments: Any) -> ToolResult:
    given = check_arguments(tool, arguments)
    return await execute(tool, given, context, default_timeout_seconds=timeout_seconds)
