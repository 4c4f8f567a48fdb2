"""Callboard: runs agents, shows every tool call as it happens, and remembers them all.

For a file of agents: `from callboard import Agent, Skill, ToolContext, ToolResult, register, report_status, tool`. For
your own application: `Callboard`, `OpenAICompatible`, `Settings`, `api_key`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard._application.application import Callboard
    from callboard._cli.serve import make_app
    from callboard._version import __version__
    from callboard.agents import Agent, Limits, RunContext, register
    from callboard.calls import Services, Tool, ToolContext, ToolResult, report_status, tool
    from callboard.errors import ToolError
    from callboard.http import Authenticate, Principal, api_key
    from callboard.models import ChatModel, OpenAICompatible
    from callboard.observers import Observer
    from callboard.settings import Settings
    from callboard.skills import Skill
    from callboard.storage import Store
else:
    _MODULES = {
        "Agent": "callboard.agents",
        "Authenticate": "callboard.http",
        "Callboard": "callboard._application.application",
        "ChatModel": "callboard.models",
        "Limits": "callboard.agents",
        "Observer": "callboard.observers",
        "OpenAICompatible": "callboard.models",
        "Principal": "callboard.http",
        "RunContext": "callboard.agents",
        "Services": "callboard.calls",
        "Settings": "callboard.settings",
        "Skill": "callboard.skills",
        "Store": "callboard.storage",
        "Tool": "callboard.calls",
        "ToolContext": "callboard.calls",
        "ToolError": "callboard.errors",
        "ToolResult": "callboard.calls",
        "__version__": "callboard._version",
        "api_key": "callboard.http",
        "make_app": "callboard._cli.serve",
        "register": "callboard.agents",
        "report_status": "callboard.calls",
        "tool": "callboard.calls",
    }

    def __getattr__(name):
        # Imported on first use, because `callboard pipe` prints a file and needs no database or web server.
        if name not in _MODULES:
            raise AttributeError(f"module 'callboard' has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


__all__ = [
    "Agent",
    "Authenticate",
    "Callboard",
    "ChatModel",
    "Limits",
    "Observer",
    "OpenAICompatible",
    "Principal",
    "RunContext",
    "Services",
    "Settings",
    "Skill",
    "Store",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "__version__",
    "api_key",
    "make_app",
    "register",
    "report_status",
    "tool",
]
