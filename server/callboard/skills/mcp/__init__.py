"""MCP servers as skills: the skill's tools are the server's current tools."""
