"""Search engines, one a file, and which of them a server has."""

from callboard.settings import Settings
from callboard.skills.web.engines.brave import Brave
from callboard.skills.web.engines.duckduckgo import DuckDuckGo
from callboard.skills.web.engines.engine import Action, Ask, Engine, Found, TimeRange
from callboard.skills.web.engines.reddit import Reddit
from callboard.skills.web.engines.searxng import SearXNG
from callboard.skills.web.engines.tavily import Tavily

__all__ = [
    "Action",
    "Ask",
    "Brave",
    "DuckDuckGo",
    "Engine",
    "Found",
    "Reddit",
    "SearXNG",
    "Tavily",
    "TimeRange",
    "engines_of",
]


def engines_of(settings: Settings, action: Action = "web") -> tuple[Engine, ...]:
    """The engines that are set up, in the order in which they are asked: the admin's own before all others.

    For `reddit` Reddit itself is asked first.
    """
    engines: list[Engine] = [Reddit(settings.reddit_url)] if action == "reddit" and settings.reddit_url else []
    if settings.searxng_url:
        engines.append(SearXNG(settings.searxng_url))
    if settings.brave_api_key:
        engines.append(Brave(settings.brave_api_key.get_secret_value()))
    if settings.tavily_api_key:
        engines.append(Tavily(settings.tavily_api_key.get_secret_value()))
    return (*engines, DuckDuckGo())
