"""Skills: a piece of prompt and the tools for it. Knows tools, and neither models nor agents.

The skills that come with the server are one file or package each; an agent takes those that it wants.
"""

from callboard.skills.clock import TIME
from callboard.skills.home import HOME, home_intents
from callboard.skills.mcp import MCP, mcp_server
from callboard.skills.media import MEDIA, MEDIA_INFO, TRIAGE
from callboard.skills.memory import MEMORY
from callboard.skills.model_choice import MODEL
from callboard.skills.past_chats import HISTORY
from callboard.skills.profile import PROFILE
from callboard.skills.reflection import SELF
from callboard.skills.skill import Skill
from callboard.skills.web import WEB

__all__ = [
    "HISTORY",
    "HOME",
    "MCP",
    "MEDIA",
    "MEDIA_INFO",
    "MEMORY",
    "MODEL",
    "PROFILE",
    "SELF",
    "TIME",
    "TRIAGE",
    "WEB",
    "Skill",
    "home_intents",
    "mcp_server",
]
