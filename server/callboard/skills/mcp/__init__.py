"""MCP servers as skills: their tools are a skill's tools, as many as they have at the moment."""

from callboard.skills.mcp.configured import MCP
from callboard.skills.mcp.server import McpState
from callboard.skills.mcp.skills import mcp_server, mcp_skills, mcp_state, try_mcp_server

__all__ = ["MCP", "McpState", "mcp_server", "mcp_skills", "mcp_state", "try_mcp_server"]
