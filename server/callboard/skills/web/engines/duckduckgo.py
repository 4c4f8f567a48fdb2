"""DuckDuckGo and others without a key, by the library `ddgs`, which reads their result pages."""

from collections.abc import Callable
from functools import partial

from ddgs import DDGS
from ddgs.exceptions import DDGSException

from callboard.errors import ToolError
from callboard.skills.web.engines.engine import RESULTS, Ask, Found, read_results
from callboard.skills.web.threads import SEARCHES

TIMEOUT_SECONDS = 10
DETAIL_CHARS = 200


class DuckDuckGo:
    """Search without a key; how it fares is up to sites that do not promise to answer programs.

    `connect` makes a client for one search, `backend` names the library's engines, with commas.
    """

    name = "DuckDuckGo"

    def __init__(self, connect: Callable[[], DDGS] | None = None, backend: str = "auto") -> None:
        self._connect = connect or partial(DDGS, timeout=TIMEOUT_SECONDS)
        self._backend = backend

    async def search(self, ask: Ask) -> list[Found]:
        """The results. Raises `ToolError` where none of its engines gave any."""
        try:
            entries = await SEARCHES.run(partial(self._look_up, ask))
        except DDGSException as error:
            raise ToolError(f"DuckDuckGo found nothing or refused: {str(error)[:DETAIL_CHARS].rstrip('.')}.") from error
        return read_results(entries, url="url" if ask.action == "news" else "href", snippet="body", published=("date",))

    def _look_up(self, ask: Ask) -> list[dict[str, object]]:
        client = self._connect()
        look_up = client.news if ask.action == "news" else client.text
        limit = ask.time_range[0] if ask.time_range else None
        return look_up(ask.words, timelimit=limit, page=ask.page, max_results=RESULTS, backend=self._backend)
