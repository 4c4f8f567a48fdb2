"""MCP servers of an agent that tell failures from results: the SDK passes on the text alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from agents.mcp import MCPServer

_failures: ContextVar[list[str]] = ContextVar("callboard_mcp_failures")


@contextmanager
def mcp_failures() -> Iterator[list[str]]:
    """Within it, one tool is run: the names of what failed at an MCP server are in the list."""
    failures: list[str] = []
    token = _failures.set(failures)
    try:
        yield failures
    finally:
        _failures.reset(token)


def watched_server(server: MCPServer) -> MCPServer:
    """The server, whose failures `mcp_failures` hears of; it is connected and closed by its owner."""
    return cast(MCPServer, _WatchedServer(server))


class _WatchedServer:
    # Not a copy: servers remember the tools that they have, and their connection.
    def __init__(self, server: MCPServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def call_tool(self, tool_name: str, *args: Any, **kwargs: Any) -> Any:
        result: Any = await self._server.call_tool(tool_name, *args, **kwargs)
        # `isError` before MCP 2.
        if getattr(result, "is_error", False) or getattr(result, "isError", False):
            _failures.get([]).append(tool_name)
        return result
