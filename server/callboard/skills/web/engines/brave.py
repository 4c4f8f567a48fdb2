"""Brave's Search API. Shapes: api-dashboard.search.brave.com/documentation."""

import httpx

from callboard.errors import ToolError
from callboard.skills.web.engines.asking import ask_json
from callboard.skills.web.engines.engine import RESULTS, Ask, Found, listed, read_results

BASE_URL = "https://api.search.brave.com/res/v1"
MAX_PAGE = 10
MAX_QUERY_CHARS = 400
MAX_QUERY_WORDS = 50

_BAD_KEY = "check CALLBOARD_BRAVE_API_KEY, and that its plan has this search"


class Brave:
    """Brave, with a key."""

    name = "Brave"

    def __init__(self, api_key: str, base_url: str = BASE_URL) -> None:
        self._api_key = api_key
        self._base_url = base_url

    async def search(self, ask: Ask) -> list[Found]:
        """The results. Raises `ToolError` where it cannot say."""
        if ask.page > MAX_PAGE:
            raise ToolError(f"Brave has {MAX_PAGE} pages only.")
        kind = "news" if ask.action == "news" else "web"
        parameters = {
            "q": " ".join(ask.words.split()[:MAX_QUERY_WORDS])[:MAX_QUERY_CHARS],
            "count": str(RESULTS),
            "offset": str(ask.page - 1),
            "text_decorations": "false",
        }
        if ask.time_range:
            parameters["freshness"] = f"p{ask.time_range[0]}"
        headers = {"X-Subscription-Token": self._api_key, "Accept": "application/json"}
        request = httpx.Request("GET", f"{self._base_url}/{kind}/search", params=parameters, headers=headers)
        answer = await ask_json(self.name, request, advice={401: _BAD_KEY, 403: _BAD_KEY}, wait=_wait)
        entries = listed(answer, "results") if kind == "news" else listed(answer, "web", "results")
        return read_results(entries, snippet="description", published=("page_age", "age"))


def _wait(headers: httpx.Headers) -> float | None:
    """Until the shortest of its windows opens; None where a longer one, the month's, is used up.

    Both headers hold a value a window, the shortest first: `X-RateLimit-Remaining: 0, 1500`.
    """
    try:
        remaining, reset = (
            [int(part) for part in headers[f"X-RateLimit-{name}"].split(",")] for name in ("Remaining", "Reset")
        )
    except (KeyError, ValueError):
        return None
    return None if 0 in remaining[1:] else float(reset[0])
