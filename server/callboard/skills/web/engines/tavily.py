"""Tavily's search. Shapes: docs.tavily.com, "POST /search", and its Python client."""

from typing import Any

import httpx

from callboard.errors import ToolError
from callboard.skills.web.engines.asking import ask_json
from callboard.skills.web.engines.engine import RESULTS, Ask, Found, listed, read_results

BASE_URL = "https://api.tavily.com"
MAX_COUNT = 20

_USED_UP = "the plan's searches are used up"


class Tavily:
    """Tavily, with a key. It has no pages: the second is what comes after the first in a longer list."""

    name = "Tavily"

    def __init__(self, api_key: str, base_url: str = BASE_URL) -> None:
        self._api_key = api_key
        self._base_url = base_url

    async def search(self, ask: Ask) -> list[Found]:
        """The results. Raises `ToolError` where it cannot say."""
        count = ask.page * RESULTS
        if count > MAX_COUNT:
            raise ToolError(f"Tavily has {MAX_COUNT // RESULTS} pages only.")
        body: dict[str, Any] = {
            "query": ask.query,
            "topic": "news" if ask.action == "news" else "general",
            "max_results": count,
        }
        if ask.time_range:
            body["time_range"] = ask.time_range
        if ask.action == "reddit":
            body["include_domains"] = ["reddit.com"]
        request = httpx.Request(
            "POST", f"{self._base_url}/search", json=body, headers={"Authorization": f"Bearer {self._api_key}"}
        )
        advice = {401: "check CALLBOARD_TAVILY_API_KEY", 432: _USED_UP, 433: _USED_UP}
        answer = await ask_json(self.name, request, advice=advice, wait=_wait)
        # Cut before reading: an entry that is left out must not move another to a page where it is again.
        entries = listed(answer, "results")[count - RESULTS :]
        return read_results(entries, snippet="content", published=("published_date",))


def _wait(headers: httpx.Headers) -> float | None:
    try:
        return float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None
