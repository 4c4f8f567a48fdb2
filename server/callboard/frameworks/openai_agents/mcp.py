"""Connects agents' MCP servers for as long as Callboard runs, and detects failed calls of their tools.

The SDK does not connect servers, and returns a failure as an ordinary text.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from contextvars import Context, ContextVar
from typing import Any, Final

import anyio
import httpx
from agents.exceptions import AgentsException
from agents.mcp import MCPServer, MCPServerManager
from mcp.shared.exceptions import MCPError

from callboard.errors import AgentError

FAILURES: Final = (
    MCPError,
    AgentsException,
    httpx.HTTPError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    OSError,
)
"""The exceptions of a server whose connection is lost."""

_NO_SESSION: Final = object()

_failures: ContextVar[list[str]] = ContextVar("callboard_mcp_failures")


@contextmanager
def recording_mcp_failures() -> Iterator[list[str]]:
    """Return a context for one tool, which yields a list that receives the names of MCP tools that fail in it."""
    failures: list[str] = []
    token = _failures.set(failures)
    try:
        yield failures
    finally:
        _failures.reset(token)


class ServerConnections:
    """The connections of an agent's MCP servers.

    Each is opened when a run first needs it, and stays open until `close`. A server that its author has connected is
    closed by its author.
    """

    def __init__(self) -> None:
        self._connections: list[_Connection] = []

    async def connect(self, server: MCPServer) -> MCPServer:
        """Return the server connected, or a connected server of the same configuration. Raises `AgentError`."""
        configuration = _configuration(server)
        found = (known for known in self._connections if server is known.server or configuration == known.configuration)
        connection = next(found, None)
        is_managed = connection is not None and connection.server is server
        if not is_managed and getattr(server, "session", _NO_SESSION) is not None:
            return server
        if connection is None:
            connection = _Connection(server)
            self._connections.append(connection)
        try:
            await connection.wait()
        except AgentError:
            self._remove(connection)
            await connection.close()
            raise
        return connection.server

    async def reconnect(self, server: MCPServer) -> MCPServer:
        """Reconnect a server that `connect` returned and that does not answer. Raises `AgentError`."""
        for connection in [known for known in self._connections if known.server is server]:
            self._remove(connection)
            await connection.close()
        return await self.connect(server)

    async def close(self) -> None:
        """Close every connection."""
        connections = self._connections
        self._connections = []
        await asyncio.gather(*(connection.close() for connection in connections))

    def _remove(self, connection: "_Connection") -> None:
        if connection in self._connections:
            self._connections.remove(connection)


class _Connection:
    """One server, which a task of the SDK's manager connects and closes: MCP's transports require one task for both."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.configuration = _configuration(server)
        self._manager = MCPServerManager([server], connect_timeout_seconds=None, connect_in_parallel=True)
        # With an empty context, because the connection outlives the run that happens to need it first.
        self._connecting = asyncio.create_task(self._manager.connect_all(), context=Context())

    async def wait(self) -> None:
        """Return once the server is connected. Raises `AgentError`."""
        # Shielded, because another run may wait for it too.
        if not await asyncio.shield(self._connecting):
            reason = self._manager.errors.get(self.server)
            raise AgentError(f"Cannot connect to the MCP server '{self.server.name}': {reason}. Check that it starts.")

    async def close(self) -> None:
        self._connecting.cancel()
        # In its own task, because the manager suppresses a cancellation.
        await asyncio.shield(asyncio.create_task(self._manager.cleanup_all()))


def _configuration(server: MCPServer) -> tuple[type[MCPServer], dict[str, Any]]:
    """Return a server's class and settings. Servers for which they are equal may share a connection."""
    state_types = (AsyncExitStack, asyncio.Lock)
    return type(server), {name: value for name, value in vars(server).items() if not isinstance(value, state_types)}


class HookedServer:
    """An MCP server that is connected on first use, and reports failed calls to `recording_mcp_failures`."""

    # A wrapper instead of a copy, because servers hold their connection and a cache of their tools.
    def __init__(self, server: MCPServer, connections: ServerConnections) -> None:
        self._server = server
        self._connections = connections

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def list_tools(self, *args: Any, **kwargs: Any) -> Any:
        """List the tools, with a new connection if the old one is lost."""
        self._server = await self._connections.connect(self._server)
        try:
            return await self._server.list_tools(*args, **kwargs)
        except FAILURES:
            # The server may have restarted or stopped since the last run.
            self._server = await self._connections.reconnect(self._server)
            return await self._server.list_tools(*args, **kwargs)

    async def call_tool(self, tool_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a tool, and record a failure."""
        result: Any = await self._server.call_tool(tool_name, *args, **kwargs)
        if result.is_error:
            _failures.get([]).append(tool_name)
        return result
