"""Skills: a piece of the system prompt, and the tools for it. Skills know tools, but neither models nor agents.

The server's own skills are created with their dependencies and passed to agents:

    Agent("clerk", skills=[WebSearch(engines=[Searxng("http://searxng.lan")]), Memory(), Clock()])

Skills that need an address or a key also have `from_settings()`, which reads it from the environment. An agent may have
several skills of the same class. Each skill is imported on first use, so its dependencies are needed only then.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from callboard.skills.skill import Skill, SkillState

if TYPE_CHECKING:
    from callboard.settings import SkillSettings
    from callboard.skills.clock import Clock
    from callboard.skills.home.intents import HomeAssistantIntents
    from callboard.skills.home.skill import HomeAssistant
    from callboard.skills.mcp.skills import McpServer, McpServers
    from callboard.skills.media.skill import Seerr
    from callboard.skills.memory import Memory
    from callboard.skills.model_choice import ModelChoice
    from callboard.skills.past_chats import PastChats
    from callboard.skills.planning import Planning
    from callboard.skills.profile import Profile
    from callboard.skills.self_notes import SelfNotes
    from callboard.skills.web.client import guarded_client
    from callboard.skills.web.engines import Brave, DuckDuckGo, Engine, Searxng, Tavily
    from callboard.skills.web.guard import Guard
    from callboard.skills.web.skill import WebSearch

__all__ = [
    "Brave",
    "Clock",
    "DuckDuckGo",
    "Engine",
    "Guard",
    "HomeAssistant",
    "HomeAssistantIntents",
    "McpServer",
    "McpServers",
    "Memory",
    "ModelChoice",
    "PastChats",
    "Planning",
    "Profile",
    "Searxng",
    "Seerr",
    "SelfNotes",
    "Skill",
    "SkillSettings",
    "SkillState",
    "Tavily",
    "WebSearch",
    "guarded_client",
]

_NAMES = {
    "settings": ("SkillSettings",),
    "skills.clock": ("Clock",),
    "skills.home.intents": ("HomeAssistantIntents",),
    "skills.home.skill": ("HomeAssistant",),
    "skills.mcp.skills": ("McpServer", "McpServers"),
    "skills.media.skill": ("Seerr",),
    "skills.memory": ("Memory",),
    "skills.model_choice": ("ModelChoice",),
    "skills.past_chats": ("PastChats",),
    "skills.planning": ("Planning",),
    "skills.profile": ("Profile",),
    "skills.self_notes": ("SelfNotes",),
    "skills.web.client": ("guarded_client",),
    "skills.web.engines": ("Brave", "DuckDuckGo", "Engine", "Searxng", "Tavily"),
    "skills.web.guard": ("Guard",),
    "skills.web.skill": ("WebSearch",),
}


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"callboard.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
