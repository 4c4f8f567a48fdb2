"""Open WebUI's tools as function tools of the OpenAI Agents SDK."""

from collections.abc import Collection
from typing import Any

from agents import FunctionTool
from agents.tool_context import ToolContext

from callboard.calls import Tool
from callboard.frameworks.openwebui_tools import run_openwebui_tool
from callboard.frameworks.turn import AdapterTurn
from callboard_formats.arguments import parse_arguments


def make_openwebui_tool(turn: AdapterTurn, tool: Tool, served: Collection[str]) -> FunctionTool:
    """Return a function tool that runs the tool in Open WebUI; it is not offered if its name is in `served` then."""

    async def invoke(_: ToolContext[Any], arguments: str) -> str:
        # A call whose arguments are not an object has been refused when the model wrote it.
        return await run_openwebui_tool(turn, tool, **parse_arguments(arguments))

    return FunctionTool(
        tool.name,
        tool.description,
        dict(tool.parameters),
        invoke,
        strict_json_schema=False,
        is_enabled=lambda *_: tool.name not in served,
    )
