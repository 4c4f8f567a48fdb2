"""A Seerr that is missing, refuses, or is another server: each is an error with advice."""

import socket

import httpx
import pytest

from callboard.errors import NotSetUp, ToolError
from callboard.skills import Seerr
from callboard.skills.media.client import SeerrClient
from callboard.skills.media.models import Entries
from callboard.storage import Store
from tests.fakes.seerr import KEY, Refusal, SeerrServer, refused
from tests.skills.media.conftest import Media

REFUSALS = {
    "a key without a login": (refused(401, "You must be logged in."), "CALLBOARD_SEERR_API_KEY"),
    "no permission": (refused(403, "This media is blocklisted."), "does not allow it: This media is blocklisted."),
    "a rate limit": (refused(429, "slow down", **{"Retry-After": "7"}), "try again in 7 s"),
    "a proxy without Seerr": (Refusal(502, "<html>", content_type="text/html"), "not ready"),
    "another address": (Refusal(301, "", {"Location": "https://elsewhere/"}), "CALLBOARD_SEERR_URL"),
    "a failure": (
        refused(500, "Unable to retrieve " + "no " * 10_000),
        r"\(500\): Unable[^\n]{9,400}$",
    ),
    "a failure that is a list": (Refusal(500, "[1]"), r"\(500\): it gave no reason"),
    "a web page": (Refusal(200, "<html>", content_type="text/html"), "a web page, not with Seerr's API"),
    "another API": (Refusal(200, '{"page": 1}'), r"is not in the form of its API v1 \(at 'totalPages'\)"),
}


@pytest.mark.parametrize(("refusal", "told"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_every_refusal_has_advice(media: Media, seerr: SeerrServer, refusal: Refusal, told: str) -> None:
    seerr.refusal = refusal
    with pytest.raises(ToolError, match=told):
        await media.text("media_search", query="dune")


async def test_wrong_key_is_reported_without_key(seerr: SeerrServer, store: Store) -> None:
    media = Media(Seerr(seerr.url, "wrong-key"), store)
    with pytest.raises(ToolError, match="CALLBOARD_SEERR_API_KEY") as caught:
        await media.text("media_trending")
    assert "wrong-key" not in str(caught.value)


async def test_unreachable_invalid_and_missing_address_are_distinguished(store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for url in (closed, "http://[", "seerr:5055"):
        with pytest.raises(ToolError, match=r"cannot be reached .* CALLBOARD_SEERR_URL"):
            await Media(Seerr(url, KEY), store).text("media_trending")
    with pytest.raises(NotSetUp, match="needs CALLBOARD_SEERR_URL, CALLBOARD_SEERR_API_KEY"):
        Seerr.from_settings({})


async def test_base_path_is_kept_and_final_slash_removed(seerr: SeerrServer, store: Store) -> None:
    media = Media(Seerr(f"{seerr.url}/", KEY), store)
    await media.text("media_trending")
    assert seerr.asked == ["/api/v1/discover/trending?page=1"]
    with pytest.raises(ToolError, match="a web page"):
        await Media(Seerr(f"{seerr.url}/base", KEY), store).text("media_trending")


async def test_timeout_of_seerr_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=0.05) as client:
            with pytest.raises(ToolError, match="did not answer in time"):
                await SeerrClient(client).get(Entries, "/search", query="dune")
