"""Search engines: the requests to each, and their answers as results that can be cited.

The addresses of the JSON APIs are set by the admin, so they may be private.
"""

import asyncio
import html
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import httpx

from callboard.errors import ToolError
from callboard.redaction import secrets_in_url
from callboard.text import storable
from callboard.threads import Threads
from callboard.tls import tls_context

if TYPE_CHECKING:
    from ddgs import DDGS

Action = Literal["web", "news", "reddit"]
TimeRange = Literal["day", "week", "month", "year"]

RESULTS = 10
"""The results per page, if the engine allows a choice."""

MAX_RESULTS = 20
TITLE_CHARS = 300
SNIPPET_CHARS = 1000
PUBLISHED_CHARS = 40
URL_CHARS = 2000
TIMEOUT_SECONDS = 10.0
MAX_WAIT_SECONDS = 2.0
DETAIL_CHARS = 200

SEARCH_THREADS = Threads("search", 8)
"""The threads for blocking searches."""

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search. `page` counts from 1."""

    action: Action
    words: str
    time_range: TimeRange | None = None
    page: int = 1

    @property
    def text(self) -> str:
        """The words to search for, restricted to Reddit if the action is `reddit`."""
        return f"{self.words} site:reddit.com" if self.action == "reddit" else self.words


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One result, as plain text.

    `published` is in the engine's words, for example a date or "2 hours ago", or empty.
    """

    title: str
    url: str
    snippet: str
    published: str = ""


class Engine(ABC):
    """A search engine. `name` is used in messages, `secrets` are its keys."""

    name: str
    secrets: Sequence[str] = ()

    @abstractmethod
    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Return the results, best first, or an empty list. Raises `ToolError` if the engine fails."""


class Searxng(Engine):
    """A SearXNG instance (docs.searxng.org, "Search API"). The length of a page depends on its engines."""

    name = "SearXNG"

    def __init__(self, url: str) -> None:
        self._base_url = url.rstrip("/").removesuffix("/search")
        self.secrets = secrets_in_url(url)

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Return at most `MAX_RESULTS` results. Raises `ToolError` if SearXNG or all its engines fail."""
        parameters = {
            "q": query.text,
            "format": "json",
            "categories": "news" if query.action == "news" else "general",
            "pageno": str(query.page),
        }
        if query.time_range:
            parameters["time_range"] = query.time_range
        advice = {
            # SearXNG's answer for a format that its settings do not list.
            403: "add json to search.formats in its settings.yml",
            429: "its limiter refuses this server: allow it in its limiter.toml",
        }
        answer = await request_json(self.name, "GET", f"{self._base_url}/search", advice, params=parameters)
        results = read_results(find_list(answer, "results"), snippet="content", published=("publishedDate",))
        if not results and (silent := find_list(answer, "unresponsive_engines")):
            raise ToolError(f"SearXNG's engines did not answer: {', '.join(map(_format_reason, silent[:5]))}.")
        return results[:MAX_RESULTS]


def _format_reason(entry: object) -> str:
    return " ".join(str(part)[:60] for part in entry) if isinstance(entry, list) else str(entry)[:60]


class Brave(Engine):
    """Brave's Search API, with a key (api-dashboard.search.brave.com/documentation)."""

    name = "Brave"
    MAX_PAGE: ClassVar = 10
    MAX_QUERY_CHARS: ClassVar = 400
    MAX_QUERY_WORDS: ClassVar = 50

    def __init__(self, api_key: str, base_url: str = "https://api.search.brave.com/res/v1") -> None:
        self._api_key = api_key
        self._base_url = base_url
        self.secrets = (api_key,)

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Return the results. Raises `ToolError` if Brave fails."""
        if query.page > self.MAX_PAGE:
            raise ToolError(f"Brave has only {self.MAX_PAGE} pages.")
        kind = "news" if query.action == "news" else "web"
        parameters = {
            "q": " ".join(query.text.split()[: self.MAX_QUERY_WORDS])[: self.MAX_QUERY_CHARS],
            "count": str(RESULTS),
            "offset": str(query.page - 1),
            "text_decorations": "false",
        }
        if query.time_range:
            parameters["freshness"] = f"p{query.time_range[0]}"
        headers = {"X-Subscription-Token": self._api_key, "Accept": "application/json"}
        url = f"{self._base_url}/{kind}/search"
        bad_key = "check CALLBOARD_BRAVE_API_KEY, and that its plan has this search"
        advice = {401: bad_key, 403: bad_key}
        answer = await request_json(self.name, "GET", url, advice, params=parameters, headers=headers)
        entries = find_list(answer, "results") if kind == "news" else find_list(answer, "web", "results")
        return read_results(entries, snippet="description", published=("page_age", "age"))


class Tavily(Engine):
    """Tavily's search, with a key (docs.tavily.com, "POST /search", and its Python client). It has no pages."""

    name = "Tavily"

    def __init__(self, api_key: str, base_url: str = "https://api.tavily.com") -> None:
        self._api_key = api_key
        self._base_url = base_url
        self.secrets = (api_key,)

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Return the results. Raises `ToolError` if Tavily fails."""
        if query.page > 1:
            raise ToolError("Tavily has only one page.")
        body: dict[str, Any] = {
            "query": query.words,
            "topic": "news" if query.action == "news" else "general",
            "max_results": RESULTS,
        }
        if query.time_range:
            body["time_range"] = query.time_range
        if query.action == "reddit":
            body["include_domains"] = ["reddit.com"]
        headers = {"Authorization": f"Bearer {self._api_key}"}
        used_up = "the plan's searches are used up"
        advice = {401: "check CALLBOARD_TAVILY_API_KEY", 432: used_up, 433: used_up}
        answer = await request_json(self.name, "POST", f"{self._base_url}/search", advice, json=body, headers=headers)
        return read_results(find_list(answer, "results"), snippet="content", published=("published_date",))


class DuckDuckGo(Engine):
    """DuckDuckGo and other engines without a key, through the library `ddgs`, which reads their result pages.

    The sites do not promise to answer programs, so a search may fail at any time. `connect` makes a client for one
    search. `backend` is a comma-separated list of the library's engines.
    """

    name = "DuckDuckGo"

    def __init__(self, connect: "Callable[[], DDGS] | None" = None, backend: str = "auto") -> None:
        self._connect = connect
        self._backend = backend

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Return the results. Raises `ToolError` if none of the engines returned any."""
        # Imported here because it belongs to an extra, which other engines do not need.
        from ddgs.exceptions import DDGSException

        try:
            entries = await SEARCH_THREADS.run(partial(self._search_blocking, query))
        except DDGSException as error:
            raise ToolError(f"DuckDuckGo found nothing or refused: {str(error)[:DETAIL_CHARS].rstrip('.')}.") from error
        return read_results(
            entries, url="url" if query.action == "news" else "href", snippet="body", published=("date",)
        )

    def _search_blocking(self, query: SearchQuery) -> list[dict[str, object]]:
        from ddgs import DDGS

        client = self._connect() if self._connect else DDGS(timeout=int(TIMEOUT_SECONDS))
        search = client.news if query.action == "news" else client.text
        limit = query.time_range[0] if query.time_range else None
        return search(query.text, timelimit=limit, page=query.page, max_results=RESULTS, backend=self._backend)


async def request_json(engine: str, method: str, url: str, advice: Mapping[int, str], **content: Any) -> dict[str, Any]:
    """Send a request and return the JSON object of its answer. `content` is as in `httpx.Request`.

    `advice` explains statuses to the reader of the error.

    A request with status 429 is repeated once, if the answer names a delay of at most `MAX_WAIT_SECONDS`: models start
    several searches at the same time, and free plans allow one per second. Raises `ToolError` for every failure.
    """
    try:
        request = httpx.Request(method, url, **content)
        async with httpx.AsyncClient(verify=tls_context(), timeout=TIMEOUT_SECONDS) as client:
            response = await client.send(request)
            if response.status_code == 429 and 0 <= (delay := _read_retry_delay(response.headers)) <= MAX_WAIT_SECONDS:
                await asyncio.sleep(delay)
                response = await client.send(request)
    except httpx.TimeoutException as error:
        raise ToolError(f"{engine} did not answer within {TIMEOUT_SECONDS:g} s.") from error
    except httpx.InvalidURL as error:
        raise ToolError(f"The address of {engine} is not valid: {error}.") from error
    except httpx.HTTPError as error:
        raise ToolError(f"{engine} could not be reached: {str(error) or type(error).__name__}.") from error
    answer = _read_object(response)
    if response.status_code != 200:
        moved = "it redirects: set the address that it redirects to" if response.has_redirect_location else ""
        reason = moved or advice.get(response.status_code, "") or _read_detail(answer)
        raise ToolError(f"{engine} answered {response.status_code}{': ' + reason if reason else ''}.")
    if answer is None:
        raise ToolError(f"{engine} did not answer with a JSON object: check its address.")
    return answer


def _read_retry_delay(headers: httpx.Headers) -> float:
    """Return the seconds after which a refused request may be repeated, or infinity if they are not known.

    Brave sends the seconds until each of its rate windows ends, the shortest first: `X-RateLimit-Reset: 1, 1419704`.
    """
    given = headers.get("Retry-After") or headers.get("X-RateLimit-Reset", "")
    try:
        return float(given.split(",")[0])
    except ValueError:
        return math.inf


def _read_object(response: httpx.Response) -> dict[str, Any] | None:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _read_detail(answer: Mapping[str, Any] | None) -> str:
    """Return the message in an error's body, in the form of Brave (`error.detail`) or Tavily (`detail.error`)."""
    for outer, inner in (("error", "detail"), ("detail", "error")):
        part = (answer or {}).get(outer)
        text = part.get(inner) if isinstance(part, Mapping) else part
        if isinstance(text, str) and text:
            return text[:DETAIL_CHARS].rstrip(".")
    return ""


def read_results(
    entries: Sequence[object], *, url: str = "url", snippet: str, published: tuple[str, ...] = ()
) -> list[SearchResult]:
    """Return an engine's entries as results, without entries that cannot be cited.

    The arguments are names of fields. Of `published` the first field with a value is used.
    """
    results = []
    for entry in entries:
        if isinstance(entry, Mapping) and (address := _read_url(entry.get(url))):
            when = next((clean_text(entry.get(name), PUBLISHED_CHARS) for name in published if entry.get(name)), "")
            title = clean_text(entry.get("title"), TITLE_CHARS)
            text = clean_text(entry.get(snippet), SNIPPET_CHARS)
            results.append(SearchResult(title, address, text, when))
    return results


def find_list(answer: Mapping[str, Any], *path: str) -> list[Any]:
    """Return the list at `path` of an answer, empty if there is none."""
    value: object = answer
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, list) else []


def clean_text(value: object, limit: int) -> str:
    """Return text in one line, without markup, of at most `limit` characters."""
    text = html.unescape(_TAG.sub("", value)) if isinstance(value, str) else ""
    text = " ".join(storable(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _read_url(value: object) -> str:
    if not isinstance(value, str) or len(value) > URL_CHARS:
        return ""
    try:
        url = httpx.URL(value.strip())
    except httpx.InvalidURL:
        return ""
    return str(url) if url.scheme in ("http", "https") and url.host and not url.userinfo else ""
