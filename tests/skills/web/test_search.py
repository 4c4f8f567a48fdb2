"""`search`, run as by the loop: numbers, citations, and the next engine after a failure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.skills import Brave, Engine, Searxng, Tavily
from callboard.skills.web.engines import SearchQuery, SearchResult
from callboard.skills.web.skill import search_with_first
from callboard_protocol import Source
from tests.skills.web.conftest import MakeWeb
from tests.skills.web.services import KEY, searxng, tavily
from tests.skills.web.sites import Reply, Site


@dataclass(frozen=True)
class Library(Engine):
    """An engine with these results."""

    results: Sequence[SearchResult]
    name: str = "Library"

    async def search(self, ask: SearchQuery) -> list[SearchResult]:
        return list(self.results)


async def test_results_continue_numbers_of_chat_and_are_citations(web: MakeWeb) -> None:
    async with Site(searxng) as site:
        stage = web(last_source=4, searxng_url=site.url)
        result = await stage.run("search", query=" lamps ", action="news")
    assert json.loads(result.text) == [
        {
            "source_number": number,
            "title": f"lamps {position}",
            "url": f"https://stage.example/{position}",
            "snippet": "All about lamps & gas.",
            "published": "2026-01-02T00:00:00",
        }
        for number, position in ((5, 1), (6, 2))
    ]
    source = result.sources[0]
    assert isinstance(source, Source)
    assert source.model_dump(exclude={"type"}) == {
        "source": {"name": "lamps 1", "url": "https://stage.example/1"},
        "document": ("All about lamps & gas.",),
        "metadata": ({"source": "https://stage.example/1", "name": "lamps 1", "source_number": 5},),
    }
    assert [report.message for report in stage.reports] == ["Searching with SearXNG"]


async def test_next_engine_is_used_after_failure_and_user_is_informed(web: MakeWeb) -> None:
    stage = web()
    async with Site(Reply(b"", 502)) as down, Site(tavily) as up:
        engines = (Searxng(down.url), Brave(KEY, down.url), Tavily(KEY, up.url))
        result = await search_with_first(engines, SearchQuery("web", "lamps"), stage.context)
        with pytest.raises(ToolError) as failed:
            await search_with_first(engines[:2], SearchQuery("web", "lamps"), web().context)
    assert str(failed.value) == "No search engine could answer. SearXNG answered 502. Brave answered 502."
    assert len(result.data) == 10
    assert [report.message for report in stage.reports] == [
        "Searching with SearXNG",
        "SearXNG answered 502. Searching with Brave",
        "Brave answered 502. Searching with Tavily",
    ]


async def test_nothing_found_is_an_answer_without_sources(web: MakeWeb) -> None:
    result = await search_with_first((Library(()),), SearchQuery("web", "lamps"), web().context)
    assert (result.text, result.sources) == ("Nothing was found for 'lamps': try other words, or fewer.", ())


async def test_reddit_search_keeps_only_reddit_pages(web: MakeWeb) -> None:
    urls = [
        "https://www.reddit.com/r/a",
        "https://reddit.com/r/b",
        "https://notreddit.com/c",
        "https://x.org/reddit.com",
    ]
    engine = Library([SearchResult("title", url, "text") for url in urls])
    result = await search_with_first((engine,), SearchQuery("reddit", "lamps"), web().context)
    assert [item["url"] for item in result.data] == urls[:2]


async def test_configured_engines_come_before_duckduckgo(web: MakeWeb) -> None:
    configured = web(searxng_url="http://searxng.lan", brave_api_key=KEY, tavily_api_key=KEY).skill.engines
    assert [engine.name for engine in configured] == ["SearXNG", "Brave", "Tavily", "DuckDuckGo"]
    assert [engine.name for engine in web().skill.engines] == ["DuckDuckGo"]


async def test_invalid_arguments_are_refused(web: MakeWeb) -> None:
    with pytest.raises(ToolError, match="query is empty"):
        await web().run("search", query="  ")
    for arguments in ({"action": "images"}, {"page": -1}, {"page": 11}, {"time_range": "hour"}):
        with pytest.raises(InvalidArguments):
            await web().run("search", query="lamps", **arguments)
