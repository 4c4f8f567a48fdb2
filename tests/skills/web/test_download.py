"""The limits of a download (time, size, type), and faults of servers."""

import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest

from callboard.errors import ToolError, ToolTimeout
from callboard.reading.formats import MAX_BYTES
from callboard.skills.web.client import download, guarded_client
from callboard.skills.web.guard import AllowList, Guard
from tests.skills.web.sites import Reply, Site, page


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with guarded_client(Guard(AllowList.read(("127.0.0.1",)))) as opened:
        yield opened


def packed(body: bytes, encoding: str, content_type: str = "text/plain") -> Reply:
    return Reply(body, headers={"Content-Type": content_type, "Content-Encoding": encoding})


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"curtain up", mtime=0)),
        ("deflate", zlib.compress(b"curtain up")),
        ("deflate", zlib.compress(b"curtain up", wbits=-15)),
        ("identity", b"curtain up"),
    ],
)
async def test_compressed_bodies_are_decompressed(client: httpx.AsyncClient, encoding: str, body: bytes) -> None:
    async with Site(packed(body, encoding)) as site:
        assert (await download(client, site.url)).unpack() == b"curtain up"
    assert site.heard[0].headers["accept-encoding"] == "gzip, deflate"


async def test_decompression_stops_at_limit(client: httpx.AsyncClient) -> None:
    bomb = gzip.compress(bytes(200 * 2**20), compresslevel=1)
    assert len(bomb) < MAX_BYTES["text"]
    async with Site(packed(bomb, "gzip")) as site:
        bombed = await download(client, site.url)
    tracemalloc.start()
    with pytest.raises(ToolError, match="larger than 5 MiB"):
        bombed.unpack()
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 4 * MAX_BYTES["text"]


async def test_unsupported_compression_is_refused(client: httpx.AsyncClient) -> None:
    async with Site(packed(b"whatever", "gzip, gzip")) as site:
        with pytest.raises(ToolError, match="unasked"):
            await download(client, site.url)


async def test_broken_compression_is_error(client: httpx.AsyncClient) -> None:
    async with Site(packed(b"no gzip at all", "gzip")) as site:
        with pytest.raises(ToolError, match="cannot be unpacked"):
            (await download(client, site.url)).unpack()


@pytest.mark.parametrize(("content_type", "mebibytes"), [("", 5), ("application/pdf", 20)])
async def test_body_over_limit_is_not_read_completely(
    client: httpx.AsyncClient, content_type: str, mebibytes: int
) -> None:
    body = b"x" * (mebibytes * 2**20 + 1)
    async with Site(Reply(body, headers={"Content-Type": content_type}, ending="hang")) as site:
        with pytest.raises(ToolError, match=f"larger than {mebibytes} MiB"):
            await download(client, site.url)


async def test_unsupported_content_type_is_not_downloaded(client: httpx.AsyncClient) -> None:
    async with Site(Reply(b"", headers={"Content-Type": "image/png"}, ending="hang")) as site:
        with pytest.raises(ToolError, match="sent 'image/png': only HTML, text and PDF"):
            await download(client, site.url)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html;charset=x", "html"),
        ("application/xhtml+xml", "html"),
        ("application/activity+json", "text"),
        ("application/pdf", "pdf"),
        ("", None),
    ],
)
async def test_content_type_decides_parser(client: httpx.AsyncClient, content_type: str, kind: str | None) -> None:
    async with Site(page("x", content_type)) as site:
        assert (await download(client, site.url)).kind == kind


async def test_silent_server_times_out(client: httpx.AsyncClient) -> None:
    async with Site(Reply(b"slow", headers={"Content-Type": "text/plain"}, ending="hang")) as site:
        with pytest.raises(ToolTimeout, match=r"127\.0\.0\.1 did not send the page within 0\.2 s"):
            await download(client, site.url, timeout_seconds=0.2)


async def test_body_of_redirect_is_not_read(client: httpx.AsyncClient) -> None:
    endless = Reply(b"moved", 302, {"Location": "/there"}, "hang")
    async with Site(lambda heard: page("here") if heard.path == "/there" else endless) as site:
        assert (await download(client, site.url)).body == b"here"


async def test_connection_that_is_cut_or_refused_is_an_error(client: httpx.AsyncClient) -> None:
    async with Site(Reply(b"half", headers={"Content-Type": "text/plain"}, ending="cut")) as site:
        with pytest.raises(ToolError, match=r"127\.0\.0\.1 could not be reached: peer closed"):
            await download(client, site.url)
    with pytest.raises(ToolError, match="could not be reached"):
        await download(client, site.url)


async def test_an_error_status_is_an_error_that_names_it(client: httpx.AsyncClient) -> None:
    async with Site(Reply(b"<h1>No</h1>", 503)) as site:
        with pytest.raises(ToolError, match="answered 503"):
            await download(client, site.url)
