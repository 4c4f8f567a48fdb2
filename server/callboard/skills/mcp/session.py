"""One open connection to an MCP server: its tools, and calls to them side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND
from mcp_types import Tool as McpTool

from callboard.errors import ToolError
from callboard.skills.mcp.catalogue import MAX_TOOLS, ListedTool
from callboard.skills.mcp.content import MAX_ERROR_CHARS, cut, tool_result
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.signals import Signals
from callboard.tools import ToolContext, ToolResult

CALL_SECONDS = 86_400.0
"""Longer than any call may take: the executor's limit comes first, and cancels the call at the server too."""

MAX_REPORTS = 200
"""Of one call; each is an event and a row in the database."""

MAX_REPORT_CHARS = 500
MAX_PAGES = 100

_LOST_OVER_HTTP = ("Session terminated", "Server returned an error response")
"""What the SDK makes of a 404 and of other statuses, which have no code of their own: most come of a restart."""


@dataclass(frozen=True, slots=True)
class Session:
    """What is said over a connection; used by many tasks at once."""

    declaration: ServerDeclaration
    client: Client
    signals: Signals

    async def listed_tools(self) -> list[ListedTool]:
        """All pages of the server's list, up to one tool more than is of use. Raises what the SDK raises."""
        listed: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self.client.list_tools(cursor=cursor)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    break  # a server of prompts and resources alone
                raise
            listed += [_listed(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(listed) > MAX_TOOLS:
                break
        return listed

    async def call(self, tool_name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Runs a tool; its progress becomes statuses of the call. Raises `ToolError`.

        Cancelling this cancels the tool at the server.
        """
        name, hide = self.declaration.name, self.declaration.hide
        progress = _Progress(self.declaration, context)
        try:
            result = await self.client.call_tool(
                tool_name, dict(arguments), read_timeout_seconds=CALL_SECONDS, progress_callback=progress.report
            )
        except MCPError as error:
            said = cut(hide(error.message), MAX_ERROR_CHARS)
            if _is_lost(error):
                self.signals.end("the connection was lost during a call")
                raise ToolError(
                    f"The MCP server '{name}' was lost during this call ({said}), which may have been carried out or "
                    "not. It is being restarted; try again in a few seconds."
                ) from error
            raise ToolError(f"The MCP server '{name}' refused the call: {said}") from error
        except (RuntimeError, ValueError) as error:
            # The SDK's checks: a result that is none, or not what the tool's output schema says.
            said = cut(hide(str(error)), MAX_ERROR_CHARS)
            raise ToolError(f"The MCP server '{name}' gave a result that cannot be used: {said}") from error
        return tool_result(name, result, hide)


@dataclass(slots=True)
class _Progress:
    declaration: ServerDeclaration
    context: ToolContext
    reports: int = 0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """A progress notification as a status of the call."""
        self.reports += 1
        if self.reports > MAX_REPORTS:
            return
        percent = 100 * progress / total if total and total > 0 else None
        said = message or (f"{progress:g}" if percent is None else "")
        await self.context.status("processing", self.declaration.hide(said)[:MAX_REPORT_CHARS], progress=percent)


def _listed(tool: McpTool) -> ListedTool:
    hints = tool.annotations
    return ListedTool(
        tool.name,
        tool.description or tool.title or (hints.title if hints else None) or "",
        tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
    )


def _is_lost(error: MCPError) -> bool:
    return error.code == CONNECTION_CLOSED or error.message in _LOST_OVER_HTTP
