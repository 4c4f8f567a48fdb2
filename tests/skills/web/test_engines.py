"""SearXNG, Brave and Tavily, over HTTP, in the shapes that they document."""

import json
from collections.abc import Callable

import pytest

from callboard.errors import ToolError
from callboard.skills.web.engines import Brave, Engine, SearchQuery, SearchResult, Searxng, Tavily
from tests.skills.web.services import KEY, brave, brave_error, searxng, tavily
from tests.skills.web.sites import Heard, Reply, Site, answer, page

MakeEngine = Callable[[str], Engine]

LIMITED = "Request rate limit exceeded for plan"


def brave_at(url: str) -> Brave:
    return Brave(KEY, url)


def tavily_at(url: str) -> Tavily:
    return Tavily(KEY, url)


async def test_searxng_returns_plain_text_by_page() -> None:
    async with Site(searxng) as site:
        engine = Searxng(f"{site.url}/")
        first = await engine.search(SearchQuery("web", "lamps"))
        second = await engine.search(SearchQuery("news", "lamps", "week", 2))
        await engine.search(SearchQuery("reddit", "lamps"))
    assert first[0] == SearchResult("lamps 1", "https://stage.example/1", "All about lamps & gas.")
    assert second[0] == SearchResult(
        "lamps 3", "https://stage.example/3", "All about lamps & gas.", "2026-01-02T00:00:00"
    )
    asked = [heard.query for heard in site.heard]
    assert asked == [
        {"q": "lamps", "format": "json", "categories": "general", "pageno": "1"},
        {"q": "lamps", "format": "json", "categories": "news", "pageno": "2", "time_range": "week"},
        {"q": "lamps site:reddit.com", "format": "json", "categories": "general", "pageno": "1"},
    ]


async def test_searxng_without_answering_engines_names_them() -> None:
    async with Site(searxng) as site:
        with pytest.raises(ToolError, match=r"did not answer: duckduckgo CAPTCHA, google timeout\."):
            await Searxng(site.url).search(SearchQuery("web", "lamps", page=3))


async def test_brave_searches_the_web_and_the_news_page_by_page() -> None:
    async with Site(brave) as site:
        web = await brave_at(site.url).search(SearchQuery("web", "lamps", "month", 2))
        news = await brave_at(site.url).search(SearchQuery("news", "lamps"))
    assert web == [
        SearchResult("lamps web 1", "https://stage.example/1/1", "All about lamps.", "2026-01-02T03:04:05"),
        SearchResult("lamps web 2", "https://stage.example/1/2", "All about lamps.", "2 hours ago"),
    ]
    assert [result.title for result in news] == ["lamps news 1", "lamps news 2"]
    assert [heard.path for heard in site.heard] == ["/web/search", "/news/search"]
    assert site.heard[0].query == {
        "q": "lamps",
        "count": "10",
        "offset": "1",
        "text_decorations": "false",
        "freshness": "pm",
    }


async def test_long_query_is_cut_for_brave() -> None:
    async with Site(brave) as site:
        for query in ("word " * 80, "x" * 600):
            assert await brave_at(site.url).search(SearchQuery("reddit", query))


async def test_tavily_searches_the_web_and_the_news_in_one_page() -> None:
    async with Site(tavily) as site:
        engine = tavily_at(site.url)
        first = await engine.search(SearchQuery("web", "lamps", "year"))
        news = await engine.search(SearchQuery("news", "lamps"))
        reddit = await engine.search(SearchQuery("reddit", "lamps"))
        with pytest.raises(ToolError, match="only one page"):
            await engine.search(SearchQuery("web", "lamps", page=2))
    assert [result.title for result in first] == [f"lamps {number}" for number in range(1, 11)]
    assert news[0].published == "Fri, 02 Jan 2026 03:04:05 GMT"
    assert reddit[0].url == "https://www.reddit.com/1"
    assert json.loads(site.heard[0].body) == {
        "query": "lamps",
        "topic": "general",
        "max_results": 10,
        "time_range": "year",
    }


@pytest.mark.parametrize("make", [Searxng, brave_at, tavily_at])
async def test_results_that_cannot_be_cited_are_left_out(make: MakeEngine) -> None:
    entries = [
        {"url": "javascript:alert(1)", "title": "script"},
        {"url": "https://user:password@stage.example/", "title": "password"},
        {"url": "https://stage.example/" + "x" * 3000, "title": "endless"},
        {"url": None, "title": "none"},
        {"title": "nowhere"},
        "no object",
        {"url": "https://stage.example/1", "title": "\ud800\0"},
        {"url": "https://stage.example/2", "title": "<em>A</em>\n  B" + "c" * 500, "content": 7, "description": {}},
    ]
    async with Site(answer({"results": entries, "web": {"results": entries}})) as site:
        results = await make(site.url).search(SearchQuery("web", "lamps"))
    assert [(result.url, result.title[:5], len(result.title), result.snippet) for result in results] == [
        ("https://stage.example/1", "\ufffd\ufffd", 2, ""),
        ("https://stage.example/2", "A Bcc", 300, ""),
    ]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (page("<h1>It works!</h1>"), "did not answer with a JSON object: check its address"),
        (
            Reply(b"", 301, {"Location": "https://elsewhere.example/"}),
            "it redirects: set the address that it redirects to",
        ),
        (Reply(b"{", ending="cut"), "could not be reached: peer closed"),
    ],
)
async def test_invalid_answer_is_error(reply: Reply, told: str) -> None:
    async with Site(reply) as site:
        for make in (Searxng, brave_at, tavily_at):
            with pytest.raises(ToolError, match=told):
                await make(site.url).search(SearchQuery("web", "lamps"))
    with pytest.raises(ToolError, match="could not be reached: All connection attempts failed"):
        await Searxng(site.url).search(SearchQuery("web", "lamps"))


@pytest.mark.parametrize(
    ("make", "reply", "told"),
    [
        (lambda _: Searxng("http://search.lan:eighty"), Reply(), "address of SearXNG is not valid: Invalid port"),
        (Searxng, Reply(b"Forbidden", 403), "add json to search.formats in its settings.yml"),
        (Searxng, Reply(b"Too Many Requests", 429), "allow it in its limiter.toml"),
        (tavily_at, answer({"detail": {"error": "Unauthorized."}}, 401), "check CALLBOARD_TAVILY_API_KEY"),
        (tavily_at, answer({"detail": {"error": "Exceeds your plan's set usage limit."}}, 432), "are used up"),
    ],
)
async def test_error_of_service_has_advice(make: MakeEngine, reply: Reply, told: str) -> None:
    async with Site(reply) as site:
        with pytest.raises(ToolError, match=told):
            await make(site.url).search(SearchQuery("web", "lamps"))


async def test_wrong_key_is_reported_in_brave_words_without_key() -> None:
    async with Site(brave) as site:
        with pytest.raises(ToolError, match=r"422: The provided subscription token is invalid\.") as failed:
            await Brave("wrong-key", site.url).search(SearchQuery("web", "lamps"))
    assert "wrong-key" not in str(failed.value)


@pytest.mark.parametrize(
    ("make", "limited"),
    [
        (
            brave_at,
            brave_error(429, "RATE_LIMITED", LIMITED, X_RateLimit_Reset="0, 1419704"),
        ),
        (tavily_at, answer({"detail": {"error": "Too many requests."}}, 429, Retry_After="0")),
    ],
)
async def test_short_rate_limit_is_retried_once_and_a_long_one_is_not(make: MakeEngine, limited: Reply) -> None:
    def script(heard: Heard) -> Reply:
        again = len(site.heard) > 1
        return (brave if make is brave_at else tavily)(heard) if again else limited

    async with Site(script) as site:
        assert await make(site.url).search(SearchQuery("web", "lamps"))
        assert len(site.heard) == 2
    async with Site(limited) as site:
        with pytest.raises(ToolError, match="answered 429"):
            await make(site.url).search(SearchQuery("web", "lamps"))
        assert len(site.heard) == 2
    long = Reply(limited.body, 429, {"Retry-After": "3600"})
    async with Site(long) as site:
        with pytest.raises(ToolError, match="answered 429"):
            await make(site.url).search(SearchQuery("web", "lamps"))
        assert len(site.heard) == 1
