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
    from callboard.agents import Agent, RunContext
    from callboard.agents.loading import register
    from callboard.calls import Services, Tool, ToolContext, ToolResult, report_status, tool
    from callboard.calls.limits import Limits
    from callboard.errors import ToolError
    from callboard.http import Principal, api_key
    from callboard.models import OpenAICompatible
    from callboard.settings import Settings
    from callboard.skills import Skill
    from callboard.storage import Store
else:
    _NAMES = {
        "_application.application": ("Callboard",),
        "_cli.serve": ("make_app",),
        "_version": ("__version__",),
        "agents": ("Agent", "RunContext"),
        "agents.loading": ("register",),
        "calls": ("Services", "Tool", "ToolContext", "ToolResult", "report_status", "tool"),
        "calls.limits": ("Limits",),
        "errors": ("ToolError",),
        "http": ("Principal", "api_key"),
        "models": ("OpenAICompatible",),
        "settings": ("Settings",),
        "skills": ("Skill",),
        "storage": ("Store",),
    }

    def __getattr__(name):
        # Imported on first use, because `callboard pipe` prints a file and needs no database or web server.
        for module, names in _NAMES.items():
            if name in names:
                value = getattr(import_module(f"callboard.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'callboard' has no attribute {name!r}")


__all__ = [
    "Agent",
    "Callboard",
    "Limits",
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
