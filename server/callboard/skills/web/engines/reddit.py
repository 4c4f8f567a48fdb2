"""Reddit's own search, by its JSON. It answers programs without an account as long as it likes to."""

from datetime import UTC, datetime
from typing import Any

import httpx

from callboard.errors import ToolError
from callboard.skills.web.engines.asking import ask_json
from callboard.skills.web.engines.engine import RESULTS, SNIPPET_CHARS, TITLE_CHARS, Ask, Found, listed, plain
from callboard.version import __version__

BASE_URL = "https://www.reddit.com"
SITE = "https://www.reddit.com"
USER_AGENT = f"callboard/{__version__} (a search tool)"

_REFUSED = "it lets programs without an account in no longer, or not from here"


class Reddit:
    """Reddit without a key. It has one page only: a later one is asked for by what the one before ended with."""

    name = "Reddit"

    def __init__(self, base_url: str = BASE_URL) -> None:
        self._base_url = base_url.rstrip("/")

    async def search(self, ask: Ask) -> list[Found]:
        """The posts that fit. Raises `ToolError` where it cannot say, or where a further page is wanted."""
        if ask.page > 1:
            raise ToolError("Reddit's own search gives one page.")
        parameters = {"q": ask.query, "limit": str(RESULTS), "raw_json": "1", "t": ask.time_range or "all"}
        request = httpx.Request(
            "GET", f"{self._base_url}/search.json", params=parameters, headers={"User-Agent": USER_AGENT}
        )
        answer = await ask_json(self.name, request, advice={403: _REFUSED, 429: "it was asked too often"})
        posts = [entry.get("data") for entry in listed(answer, "data", "children") if isinstance(entry, dict)]
        return [found for post in posts if isinstance(post, dict) and (found := _found(post))]


def _found(post: dict[str, Any]) -> Found | None:
    path = post.get("permalink")
    if not isinstance(path, str) or not path.startswith("/r/"):
        return None
    try:
        url = httpx.URL(SITE + path)
    except httpx.InvalidURL:
        return None
    said = plain(post.get("selftext"), SNIPPET_CHARS)
    where, score, comments = plain(post.get("subreddit"), 40), post.get("score"), post.get("num_comments")
    counted = f"{score} points, {comments} comments" if isinstance(score, int) and isinstance(comments, int) else ""
    about = ", ".join(part for part in (f"r/{where}" if where else "", counted) if part)
    return Found(plain(post.get("title"), TITLE_CHARS), str(url), ". ".join(filter(None, (about, said))), _day(post))


def _day(post: dict[str, Any]) -> str:
    try:
        return datetime.fromtimestamp(float(post["created_utc"]), UTC).date().isoformat()
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return ""
