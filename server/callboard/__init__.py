"""Callboard: runs agents, shows every tool call as it happens, and remembers them all.

What the file of an agent needs is here:
`from callboard import Agent, Skill, ToolContext, ToolResult, register, report_status, tool`.
"""

from callboard.agents import Agent, Limits, register
from callboard.errors import ToolError
from callboard.skills import Skill
from callboard.tools import Tool, ToolContext, ToolResult, report_status, tool
from callboard.version import __version__

__all__ = [
    "Agent",
    "Limits",
    "Skill",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "__version__",
    "register",
    "report_status",
    "tool",
]
