"""SearXNG, at the admin's own address. Shapes: docs.searxng.org, "Search API"."""

import httpx

from callboard.errors import ToolError
from callboard.skills.web.engines.asking import ask_json
from callboard.skills.web.engines.engine import MAX_RESULTS, Ask, Found, listed, read_results


class SearXNG:
    """A SearXNG instance. A page is as long as its own engines make it, cut at `MAX_RESULTS`."""

    name = "SearXNG"

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url.rstrip("/").removesuffix("/search")

    async def search(self, ask: Ask) -> list[Found]:
        """The results. Raises `ToolError` where it or all of its engines cannot say."""
        parameters = {
            "q": ask.words,
            "format": "json",
            "categories": "news" if ask.action == "news" else "general",
            "pageno": str(ask.page),
        }
        if ask.time_range:
            parameters["time_range"] = ask.time_range
        advice = {
            # What it answers for a format that its settings do not list.
            403: "add json to search.formats in its settings.yml",
            429: "its limiter refuses this server: allow it in its limiter.toml",
        }
        try:
            request = httpx.Request("GET", f"{self._base_url}/search", params=parameters)
        except httpx.InvalidURL as error:
            raise ToolError(f"CALLBOARD_SEARXNG_URL is no address: {error}.") from error
        answer = await ask_json(self.name, request, advice=advice)
        results = read_results(listed(answer, "results"), snippet="content", published=("publishedDate",))
        if not results and (silent := listed(answer, "unresponsive_engines")):
            raise ToolError(f"SearXNG's engines did not answer: {', '.join(map(_reason, silent[:5]))}.")
        return results[:MAX_RESULTS]


def _reason(entry: object) -> str:
    return " ".join(str(part)[:60] for part in entry) if isinstance(entry, list) else str(entry)[:60]
