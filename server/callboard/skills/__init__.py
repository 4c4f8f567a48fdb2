"""Skills: a piece of prompt and the tools for it. Knows tools, and neither models nor agents.

The skills that come with the server are one file or package each; an agent takes those that it wants.
"""

from callboard.skills.media import MEDIA, MEDIA_INFO, TRIAGE
from callboard.skills.skill import Skill
from callboard.skills.web import WEB

__all__ = ["MEDIA", "MEDIA_INFO", "TRIAGE", "WEB", "Skill"]
