"""The library `ddgs`, itself, with a proxy on 127.0.0.1 that plays the sites. Their pages of today are not tested."""

import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import trustme
from ddgs import DDGS

from callboard.errors import ToolError
from callboard.skills.web.engines import DuckDuckGo, SearchQuery, SearchResult
from tests.skills.web.sites import Heard, Reply, Site, answer, page

RESULTS = """<html><body><div class="result results_links web-result"><div class="links_main result__body">
<h2 class="result__title"><a class="result__a" href="https://stage.example/lamps">Lamps &amp; stage</a></h2>
<a class="result__snippet" href="https://stage.example/lamps">All <b>lamps</b> of the stage.</a>
</div></div></body></html>"""
NEWS = {
    "date": 1767322800,
    "title": "Lamps",
    "excerpt": "All lamps.",
    "url": "https://news.example/1",
    "source": "News",
}


def duckduckgo(heard: Heard) -> Reply:
    match heard.server_name, heard.path:
        case "html.duckduckgo.com", "/html/":
            return page(RESULTS)
        case "duckduckgo.com", "/news.js":
            assert heard.query["vqd"] == "4-123"
            return answer({"results": [NEWS]})
        case "duckduckgo.com", _:
            return page('<script>vqd="4-123";</script>')
    return Reply(b"", 404)


@pytest.fixture
def connect(
    server_tls: Callable[..., ssl.SSLContext], authority: trustme.CA, tmp_path: Path
) -> Callable[[Callable[[Heard], Reply] | Reply], tuple[Site, Callable[[], DDGS]]]:
    """A proxy with scripted answers, and a factory of clients that use it."""
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))

    def make(script: Callable[[Heard], Reply] | Reply) -> tuple[Site, Callable[[], DDGS]]:
        proxy = Site(script, proxy=server_tls("html.duckduckgo.com", "duckduckgo.com"))
        return proxy, lambda: DDGS(proxy=proxy.url, verify=str(tmp_path / "authority.pem"), timeout=5)

    return make


Connect = Callable[[Callable[[Heard], Reply] | Reply], tuple[Site, Callable[[], DDGS]]]


async def test_the_web_is_searched_and_its_results_read(connect: Connect) -> None:
    proxy, client = connect(duckduckgo)
    async with proxy:
        results = await DuckDuckGo(client, "duckduckgo").search(SearchQuery("reddit", "lamps", "week", 2))
    assert results == [SearchResult("Lamps & stage", "https://stage.example/lamps", "All lamps of the stage.")]
    form = parse_qs(proxy.heard[0].body.decode())
    assert (form["q"], form["df"], form["s"]) == (["lamps site:reddit.com"], ["w"], ["10"])


async def test_the_news_are_searched(connect: Connect) -> None:
    proxy, client = connect(duckduckgo)
    async with proxy:
        results = await DuckDuckGo(client, "duckduckgo").search(SearchQuery("news", "lamps"))
    assert results == [SearchResult("Lamps", "https://news.example/1", "All lamps.", "2026-01-02T03:00:00+00:00")]


@pytest.mark.parametrize("reply", [Reply(b"", 403), page("<html><body>Are you human?</body></html>")])
async def test_refusal_of_site_is_error(connect: Connect, reply: Reply) -> None:
    proxy, client = connect(reply)
    async with proxy:
        with pytest.raises(ToolError, match=r"DuckDuckGo found nothing or refused: No results found\."):
            await DuckDuckGo(client, "duckduckgo").search(SearchQuery("web", "lamps"))
