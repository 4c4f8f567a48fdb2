"""Callboard: runs agents, shows every tool call as it happens, and remembers them all.

What the file of an agent needs is here:
`from callboard import Agent, Skill, ToolContext, ToolResult, register, report_status, tool`; and what an application of
one's own is made of: `Callboard`, `OpenAICompatible`, `Settings`, `api_key`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard._agents import Agent, Limits, register
    from callboard._application import Callboard
    from callboard._http.auth import Authenticate, api_key
    from callboard._http.principal import Principal
    from callboard._loop import RunContext
    from callboard._settings import Settings
    from callboard._tools import Services, Tool, ToolContext, ToolResult, report_status, tool
    from callboard._version import __version__
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
        "RunContext": "callboard._loop",
        "Services": "callboard._tools",
        "Settings": "callboard._settings",
        "Skill": "callboard.skills",
        "Store": "callboard.storage",
        "Tool": "callboard._tools",
        "ToolContext": "callboard._tools",
        "ToolError": "callboard.errors",
        "ToolResult": "callboard._tools",
        "__version__": "callboard._version",
        "api_key": "callboard._http.auth",
        "register": "callboard._agents",
        "report_status": "callboard._tools",
        "tool": "callboard._tools",
    }

    def __getattr__(name):
        # On first use: `callboard pipe` prints a file, and need not load a database and a web server to do so.
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
