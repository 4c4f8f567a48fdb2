"""Callboard: runs agents, shows every tool call as it happens, and remembers them all.

For a file of agents: `from callboard import Agent, Skill, ToolContext, ToolResult, register, report_status, tool`. For
your own application: `Callboard`, `OpenAICompatible`, `Settings`, `api_key`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard._agents import Agent, Limits, RunContext, register
    from callboard._application import Callboard
    from callboard._http.auth import Authenticate, api_key
    from callboard._http.principal import Principal
    from callboard._settings import Settings
    from callboard._version import __version__
    from callboard.calls import Services, Tool, ToolContext, ToolResult, report_status, tool
    from callboard.errors import ToolError
    from callboard.models import ChatModel, OpenAICompatible
    from callboard.observers import Observer
    from callboard.skills import Skill
    from callboard.storage import Store
else:
    _MODULES = {
        "Agent": "callboard._agents",
        "Authenticate": "callboard._http.auth",
        "Callboard": "callboard._application",
        "ChatModel": "callboard.models",
        "Limits": "callboard._agents",
        "Observer": "callboard.observers",
        "OpenAICompatible": "callboard.models",
        "Principal": "callboard._http.principal",
        "RunContext": "callboard._agents",
        "Services": "callboard.calls",
        "Settings": "callboard._settings",
        "Skill": "callboard.skills",
        "Store": "callboard.storage",
        "Tool": "callboard.calls",
        "ToolContext": "callboard.calls",
        "ToolError": "callboard.errors",
        "ToolResult": "callboard.calls",
        "__version__": "callboard._version",
        "api_key": "callboard._http.auth",
        "register": "callboard._agents",
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
    "register",
    "report_status",
    "tool",
]
