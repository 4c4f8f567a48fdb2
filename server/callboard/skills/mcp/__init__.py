"""MCP servers as skills: the skill's tools are the server's current tools."""

from callboard.skills.mcp.server import McpState
from callboard.skills.mcp.skills import McpServer, McpServers

__all__ = ["McpServer", "McpServers", "McpState"]
