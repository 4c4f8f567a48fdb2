"""Requests and issues: what is sent to Seerr, and the results for the model."""

from typing import Any

import pytest

from callboard.errors import ToolError
from callboard.skills import Seerr
from tests.fakes.seerr import KEY, SeerrServer, movie, series
from tests.skills.media.conftest import Media

DUNE: dict[str, Any] = {"tmdb_id": 438631, "media_type": "movie", "title": "Dune"}
SEVERANCE: dict[str, Any] = {"tmdb_id": 95396, "media_type": "tv", "title": "Severance"}


@pytest.fixture(autouse=True)
def titles(seerr: SeerrServer) -> None:
    seerr.add(movie(438631, "Dune", "2021-09-15"), series(95396, "Severance", "2022-02-17", seasons=2))


async def test_a_movie_is_requested_by_its_number_and_not_in_4k(media: Media, seerr: SeerrServer) -> None:
    said = await media.text("media_request", **DUNE)
    assert said == "Requested as request 1: Dune (2021), movie [tmdb:438631]. It is approved."
    [made] = seerr.requests
    assert (made["type"], made["media"]["tmdbId"], made["is4k"]) == ("movie", 438631, False)


async def test_request_of_series_without_seasons_is_refused(media: Media, seerr: SeerrServer) -> None:
    none: list[dict[str, Any]] = [{}, {"seasons": []}]
    for nothing in none:
        with pytest.raises(ToolError, match=r"Give the seasons.*has \[0, 1, 2\]"):
            await media.text("media_request", **SEVERANCE, **nothing)
    with pytest.raises(ToolError, match=r"has no season \[3, 9\]"):
        await media.text("media_request", **SEVERANCE, seasons=[9, 1, 3])
    assert seerr.requests == []


async def test_available_or_requested_title_is_not_requested_again(media: Media, seerr: SeerrServer) -> None:
    for status, words in ((2, "requested, waiting for approval"), (5, "available")):
        seerr.own("movie", 438631, status)
        said = await media.text("media_request", **DUNE)
        assert said == f"Nothing to request: Dune (2021), movie [tmdb:438631] is {words}."
    assert seerr.requests == []


async def test_seasons_are_requested_all_or_by_number_and_those_that_were_are_reported(media: Media) -> None:
    assert "tmdb:95396], season 0. It is approved." in await media.text("media_request", **SEVERANCE, seasons=[0])
    said = await media.text("media_request", **SEVERANCE, seasons=[1])
    assert "Severance (2022), series [tmdb:95396], season 1. It is approved." in said
    said = await media.text("media_request", **SEVERANCE, seasons="all")
    assert "season 2. It is approved." in said
    said = await media.text("media_request", **SEVERANCE, seasons=[1, 2])
    assert said == ("Nothing to request of Severance (2022), series [tmdb:95396]: No seasons available to request")


async def test_concurrent_request_is_error(media: Media, seerr: SeerrServer) -> None:
    await media.text("media_request", **DUNE)
    # Declined or deleted in the library, while the request still stands.
    seerr.own("movie", 438631, 1)
    with pytest.raises(ToolError, match=r"Nothing new: Request for this media already exists\. media_requests"):
        await media.text("media_request", **DUNE)


@pytest.mark.parametrize("title", [" dune ", "Dune (2021), movie [tmdb:438631]", "dune (2018) [tmdb:438631]"])
async def test_title_may_be_written_freely_and_as_the_tools_write_it(
    media: Media, seerr: SeerrServer, title: str
) -> None:
    await media.text("media_request", **{**DUNE, "title": title})
    assert len(seerr.requests) == 1


@pytest.mark.parametrize("title", ["Dune: Part Two", "Dune (2021) [tmdb:693134]", "Dune (1984)"])
async def test_title_that_does_not_fit_the_number_is_refused(media: Media, seerr: SeerrServer, title: str) -> None:
    with pytest.raises(ToolError, match=r"Not done: that number is Dune \(2021\), movie \[tmdb:438631\], not"):
        await media.text("media_request", **{**DUNE, "title": title})
    assert seerr.requests == []


async def test_title_may_be_in_any_language(media: Media, seerr: SeerrServer) -> None:
    seerr.own("movie", 1022789, 1)
    german = {"title": "Alles steht Kopf"}
    seerr.add(movie(150540, "Inside Out", "2015-06-17", translations={"de": german}))
    german = {"title": "Alles steht Kopf 2"}
    seerr.add(movie(1022789, "Inside Out 2", "2024-06-11", translations={"de": german}))
    inside: dict[str, Any] = {"tmdb_id": 1022789, "media_type": "movie"}
    for title in ("Alles steht Kopf", "Dune", "Alles steht Kopf 2 (2015)", "Alles steht Kopf 2 (2024) [tmdb:150540]"):
        with pytest.raises(ToolError, match="Not done"):
            await media.text("media_request", **inside, title=title)
    for title in ("Alles steht Kopf 2", "Alles steht Kopf 2 (2024)", "Alles steht Kopf 2 (2024), movie [tmdb:1022789]"):
        await media.text("media_report_issue", **inside, title=title, problem="other", message="No")
    # Another movie is called so.
    seerr.add(movie(1, "Alles steht Kopf 2"))
    with pytest.raises(ToolError, match="not 'Alles steht Kopf 2'"):
        await media.text("media_request", **inside, title="Alles steht Kopf 2")
    await media.text("media_trending", language="de")
    await media.text("media_request", **inside, title="Alles steht Kopf 2")
    assert len(seerr.requests) == 1


async def test_requests_are_listed_newest_first_with_titles_and_pages(media: Media, seerr: SeerrServer) -> None:
    seerr.add(*(movie(number, f"Film {number}", "2020-01-01") for number in range(1, 11)))
    await media.text("media_request", **SEVERANCE, seasons=[2])
    for number in range(1, 11):
        await media.text("media_request", tmdb_id=number, media_type="movie", title=f"Film {number}")
    del seerr.movies[9]
    first = (await media.text("media_requests")).splitlines()
    assert first[:3] == [
        "11 requests, page 1:",
        "- Film 10 (2020), movie [tmdb:10]: approved, requested, waiting for approval. Request 11 of Ada, 2026-11-20",
        "- A movie whose title cannot be read [tmdb:9]: approved, requested, waiting for approval. "
        "Request 10 of Ada, 2026-11-20",
    ]
    assert first[-1] == "More with page=2, of 2."
    assert "- Severance (2022), series [tmdb:95396], season 2: approved" in await media.text("media_requests", page=2)
    assert await media.text("media_requests", page=3) == "No more requests."
    seerr.requests[-1] |= {"media": None}
    seerr.requests[-2] |= {"type": "music"}
    listed = (await media.text("media_requests")).splitlines()
    assert listed[1].startswith("- A movie that Seerr no longer knows: approved, not in the library. Request 11 of Ada")
    assert listed[2].startswith("- Film 8 (2020)")
    assert await media.text("media_requests", state="failed") == "No such requests."


async def test_issue_needs_title_in_library(media: Media, seerr: SeerrServer) -> None:
    with pytest.raises(ToolError, match=r"Dune \(2021\), movie \[tmdb:438631\] is not in the library"):
        await media.text("media_report_issue", **DUNE, problem="audio", message="No sound")
    seerr.own("movie", 438631, 5)
    seerr.own("tv", 95396, 5)
    said = await media.text("media_report_issue", **DUNE, problem="audio", message="No sound")
    assert said == "Reported as issue 1: audio of Dune (2021), movie [tmdb:438631]."
    await media.text("media_report_issue", **SEVERANCE, problem="subtitles", message="Late", season=1, episode=3)
    await media.text("media_report_issue", **SEVERANCE, problem="other", message="All of it")
    assert seerr.issues == [
        {"issueType": 2, "message": "No sound", "mediaId": 1000},
        {"issueType": 3, "message": "Late", "mediaId": 1001, "problemSeason": 1, "problemEpisode": 3},
        {"issueType": 4, "message": "All of it", "mediaId": 1001, "problemSeason": 0, "problemEpisode": 0},
    ]


def test_only_the_tools_that_change_something_are_not_read_only() -> None:
    assert [tool.name for tool in Seerr("http://seerr.local", KEY).current_tools() if not tool.read_only] == [
        "media_request",
        "media_report_issue",
    ]
