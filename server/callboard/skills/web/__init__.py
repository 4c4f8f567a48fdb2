"""The web skill: searches the web and reads pages.

Every tool that fetches a URL which a model wrote must use `guarded_client`.
"""

from callboard.skills.web.client import guarded_client
from callboard.skills.web.guard import AllowList, Guard
from callboard.skills.web.skill import WebSearch

__all__ = ["AllowList", "Guard", "WebSearch", "guarded_client"]
