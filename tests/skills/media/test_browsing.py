"""What the model reads of trending titles, searches and details."""

import json
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from callboard.errors import InvalidArguments, ToolError
from tests.fakes.seerr import Refusal, SeerrServer, movie, series
from tests.skills.media.conftest import Media


async def test_trending_lists_titles_with_number_and_availability(media: Media, seerr: SeerrServer) -> None:
    seerr.add(
        movie(438631, "Dune", "2021-09-15", overview="A noble\nfamily. " * 30, voteAverage=7.79),
        series(95396, "Severance", "2022-02-17"),
        movie(7, "Nothing Known", releaseDate=None, overview=None, voteAverage=None),
    )
    seerr.own("movie", 438631, 5)
    seerr.own("tv", 95396, 4)
    lines = (await media.text("media_trending")).splitlines()
    assert lines[0] == "Trending, page 1:"
    assert lines[1].startswith("- Dune (2021), movie [tmdb:438631]: available, rated 7.8. A noble family. A noble")
    assert lines[1].endswith("…")
    assert lines[2:] == [
        "- Severance (2022), series [tmdb:95396]: partly available.",
        "- Nothing Known (no date), movie [tmdb:7]: not in the library.",
    ]


async def test_trending_is_filtered_by_kind_and_uses_the_requested_language(media: Media, seerr: SeerrServer) -> None:
    seerr.add(movie(1, "The Lighthouse", "2019-05-19", translations={"de": {"title": "Der Leuchtturm"}}))
    seerr.add(series(2, "A Series", "2020-01-01"))
    assert "A Series" not in await media.text("media_trending", media_type="movie")
    assert "The Lighthouse" not in await media.text("media_trending", media_type="tv")
    every = await media.text("media_trending", media_type="all")
    assert "The Lighthouse" in every
    assert "A Series" in every
    assert set(seerr.asked) == {"/api/v1/discover/trending?page=1"}
    assert "Der Leuchtturm" in await media.text("media_trending", language="de")
    with pytest.raises(InvalidArguments):
        await media.text("media_trending", language="de&page=7")


async def test_long_list_is_read_page_by_page(media: Media, seerr: SeerrServer) -> None:
    seerr.add(*(movie(number, f"Film {number}") for number in range(1, 46)))
    pages = [await media.text("media_trending", page=page) for page in (1, 2, 3)]
    assert [text.count("[tmdb:") for text in pages] == [20, 20, 5]
    assert pages[0].endswith("More with page=2, of 3.")
    assert "More" not in pages[2]


STATES = {
    1: "not in the library",
    2: "requested, waiting for approval",
    6: "deleted, or blocked by the admin of Seerr",
    99: "in an unknown state (99)",
}


async def test_state_of_title_is_shown_in_words(media: Media, seerr: SeerrServer) -> None:
    for number, words in STATES.items():
        seerr.add(movie(number, f"Film {number}", "2020-01-01"))
        seerr.own("movie", number, number)
        assert await media.text("media_search", query=f"Film {number}") == (
            f"Found for 'Film {number}', page 1:\n- Film {number} (2020), movie [tmdb:{number}]: {words}."
        )


async def test_names_with_any_characters_are_found(media: Media, seerr: SeerrServer) -> None:
    name = "AC/DC: What? (Really!) [REC] & More + 100%; a=b #1 *@$ Amélie 🎬 \u2028 七人の侍"
    seerr.add(movie(1, name, "2020-01-01"), movie(2, "Another", "2020-01-01"))
    found = await media.text("media_search", query=f"  {name} ")
    assert "[tmdb:1]" in found
    assert "[tmdb:2]" not in found
    assert (await media.text("media_search", query="xyzzy")).endswith("Nothing found.")
    with pytest.raises(InvalidArguments, match="query"):
        await media.text("media_search", query="  ")


async def test_people_are_listed_with_known_titles(media: Media, seerr: SeerrServer) -> None:
    known = [movie(13, "Forrest Gump", "1994-06-23"), series(1, "Bosom Buddies", "1980-11-27")]
    seerr.people = [{"id": 31, "mediaType": "person", "name": "Tom Hanks", "knownFor": known}]
    assert "- Tom Hanks (a person), known for: Forrest Gump (1994), movie [tmdb:13]; Bosom Buddies (1980), series" in (
        await media.text("media_search", query="tom hanks")
    )
    assert "Tom Hanks" not in await media.text("media_search", query="tom hanks", media_type="movie")


async def test_discover_filters_become_seerr_parameters(media: Media, seerr: SeerrServer) -> None:
    seerr.add(movie(1, "A Film", "2020-01-01"), series(2, "A Series", "2020-01-01"))
    taste = {"genre": "comedy", "year_from": 1990, "year_to": 1999, "min_rating": 7.5, "order": "rating"}
    assert "A Film" in await media.text("media_discover", media_type="movie", **taste)
    assert "A Series" in await media.text("media_discover", media_type="tv", **taste)
    films, shows = (parse_qs(asked.partition("?")[2]) for asked in seerr.asked if "/discover/" in asked)
    assert films == {
        "page": ["1"],
        "sortBy": ["vote_average.desc"],
        "genre": ["35"],
        "primaryReleaseDateGte": ["1990-01-01"],
        "primaryReleaseDateLte": ["1999-12-31"],
        "voteAverageGte": ["7.5"],
        "voteCountGte": ["200"],
    }
    assert (shows["firstAirDateGte"], shows["firstAirDateLte"]) == (["1990-01-01"], ["1999-12-31"])


async def test_newest_ends_and_upcoming_starts_today(media: Media, seerr: SeerrServer) -> None:
    before = datetime.now(UTC).date().isoformat()
    await media.text("media_discover", media_type="movie", order="newest")
    await media.text("media_discover", media_type="tv", order="upcoming")
    newest, upcoming = (parse_qs(asked.partition("?")[2]) for asked in seerr.asked)
    assert newest["sortBy"] == ["primary_release_date.desc"]
    assert before <= newest["primaryReleaseDateLte"][0] <= datetime.now(UTC).date().isoformat()
    assert upcoming["sortBy"] == ["popularity.desc"]
    assert before <= upcoming["firstAirDateGte"][0] <= datetime.now(UTC).date().isoformat()


async def test_unknown_genre_is_refused_with_known_genres(media: Media) -> None:
    with pytest.raises(ToolError, match=r"no genre 'Cooking'. Give one of these: Action, Comedy\."):
        await media.text("media_discover", media_type="tv", genre="Cooking")


async def test_details_of_movie_have_main_facts(media: Media, seerr: SeerrServer) -> None:
    people = {
        "cast": [{"id": 1, "name": "Timothée Chalamet", "character": "Paul"}, {"id": 2, "name": "Zendaya"}],
        "crew": [{"id": 3, "name": "Denis Villeneuve", "job": "Director"}, {"id": 4, "name": "X", "job": "Editor"}],
    }
    genres = [{"id": 878, "name": "Science Fiction"}]
    seerr.add(
        movie(438631, "Dune", "2021-09-15", runtime=155, genres=genres, credits=people, status="Released", tagline="")
    )
    assert (await media.text("media_details", tmdb_id=438631, media_type="movie")).splitlines() == [
        "Dune (2021), movie [tmdb:438631]",
        "Library: not in the library",
        "State: Released",
        "Released: 2021-09-15",
        "Genres: Science Fiction",
        "Length: 155 min",
        "Directed by: Denis Villeneuve",
        "With: Timothée Chalamet (Paul), Zendaya",
    ]


async def test_nulls_in_lists_hide_nothing_else(media: Media, seerr: SeerrServer) -> None:
    lost = {"genres": [None, {"id": 28, "name": "Action"}], "seasons": None, "networks": [{"id": 1, "name": None}]}
    people = {"cast": [{"id": 1, "name": "Ada", "character": None}, None], "crew": None}
    seerr.own("movie", 1, 5, seasons=[None])
    seerr.add(movie(1, "A Film", "2020-01-01", credits=people, **lost))
    person = {"id": 7, "mediaType": "person", "name": "Ada", "knownFor": [None, movie(1, "A Film", "2020-01-01")]}
    seerr.people.append(person)
    seerr.refusal = Refusal(200, json.dumps({"page": 1, "totalPages": 1, "results": [None, movie(2, "Other"), None]}))
    assert "Other (no date), movie [tmdb:2]" in await media.text("media_trending")
    seerr.refusal = None
    details = await media.text("media_details", tmdb_id=1, media_type="movie")
    assert "Library: available" in details
    assert "Genres: Action" in details
    assert "With: Ada" in details
    assert "known for: A Film (2020), movie [tmdb:1]" in await media.text("media_search", query="ada")


async def test_details_of_series_show_available_seasons(media: Media, seerr: SeerrServer) -> None:
    seerr.add(series(95396, "Severance", "2022-02-17", seasons=2))
    seerr.own("tv", 95396, 4, seasons=[{"id": 1, "seasonNumber": 1, "status": 5}])
    told = await media.text("media_details", tmdb_id=95396, media_type="tv")
    assert (
        "Seasons: specials (10 episodes, not in the library); 1 (10 episodes, available); "
        "2 (10 episodes, not in the library)"
    ) in told
