"""What a search engine is to the tool `search`, whichever it is."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx

from callboard.text import storable

Action = Literal["web", "news", "reddit"]
TimeRange = Literal["day", "week", "month", "year"]

RESULTS = 10
"""How many results a page has, where the engine lets one choose."""

MAX_RESULTS = 20
TITLE_CHARS = 300
SNIPPET_CHARS = 1000
PUBLISHED_CHARS = 40
URL_CHARS = 2000

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


@dataclass(frozen=True, slots=True)
class Ask:
    """What is looked for. `page` counts from 1."""

    action: Action
    query: str
    time_range: TimeRange | None = None
    page: int = 1

    @property
    def words(self) -> str:
        """The query for engines that know Reddit as one site among others."""
        return f"{self.query} site:reddit.com" if self.action == "reddit" else self.query


@dataclass(frozen=True, slots=True)
class Found:
    """One result, as plain text. `published` is as the engine says it: a date, or "2 hours ago"; or empty."""

    title: str
    url: str
    snippet: str
    published: str = ""


class Engine(Protocol):
    """A search engine."""

    @property
    def name(self) -> str:
        """What it is called in a sentence."""

    async def search(self, ask: Ask) -> list[Found]:
        """The results, best first, none where there are none. Raises `ToolError` where the engine cannot say."""


def read_results(
    entries: Sequence[object], *, url: str = "url", snippet: str, published: tuple[str, ...] = ()
) -> list[Found]:
    """The entries of an engine's answer, by the names of their fields, without those that cannot be cited.

    The first field of `published` that is filled counts.
    """
    results = []
    for entry in entries:
        if isinstance(entry, Mapping) and (address := _web_address(entry.get(url))):
            when = next((plain(entry.get(name), PUBLISHED_CHARS) for name in published if entry.get(name)), "")
            title, text = plain(entry.get("title"), TITLE_CHARS), plain(entry.get(snippet), SNIPPET_CHARS)
            results.append(Found(title, address, text, when))
    return results


def listed(answer: Mapping[str, Any], *path: str) -> list[Any]:
    """The list at `path` of an answer; empty where there is none."""
    value: object = answer
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, list) else []


def plain(value: object, limit: int) -> str:
    """Text without markup, in one line, `limit` characters long at most."""
    text = html.unescape(_TAG.sub("", value)) if isinstance(value, str) else ""
    text = " ".join(storable(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _web_address(value: object) -> str:
    if not isinstance(value, str) or len(value) > URL_CHARS:
        return ""
    try:
        url = httpx.URL(value.strip())
    except httpx.InvalidURL:
        return ""
    return str(url) if url.scheme in ("http", "https") and url.host and not url.userinfo else ""
