"""The agent of the tests of MCP servers that ask: it has the tools of our own server."""

import sys
from pathlib import Path

from callboard import Agent, register
from callboard.skills import McpServer

SERVER = Path(__file__).parent.parent / "skills" / "mcp" / "our_server.py"

register(Agent("traveller", "Travels.", (McpServer("ours", command=sys.executable, args=(str(SERVER),)),)))
