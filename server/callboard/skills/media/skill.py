"""The `media` skill: movies and series, by Seerr. Agents may put what acts behind confirmation."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, date, datetime
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, SecretStr, StringConstraints, model_validator

from callboard._redaction import secrets_in_url
from callboard._settings import SkillSettings
from callboard.calls import tool
from callboard.errors import ToolError
from callboard.skills.media.client import SeerrClient, connect
from callboard.skills.media.models import Details, Entries, Made, MediaType, Named, Request, Requests
from callboard.skills.media.rendering import (
    AVAILABILITY,
    KINDS,
    REQUEST_STATES,
    ShownTitles,
    check_title,
    flatten,
    render_availability,
    render_list,
    render_title,
)
from callboard.skills.skill import Skill

MAX_CAST = 6
MIN_VOTES = 200
"""Below it a rating says little: TMDB's best rated titles would be those with one vote."""
Page = Annotated[int, Field(ge=1, le=500)]
TmdbId = Annotated[int, Field(ge=1)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})?$")]
Order = Literal["popular", "rating", "newest", "upcoming"]
PAGE_SIZE = 10
PENDING = 2
PROCESSING = 3
AVAILABLE = 5
ISSUE_TYPES = {"video": 1, "audio": 2, "subtitles": 3, "other": 4}
"""Seerr's `IssueType`."""
SeasonNumber = Annotated[int, Field(ge=0)]

_PROMPT = """\
The media tools know what is trending, what exists, and what of it is in the user's library.
- Whenever you name a title, write its year and its number after it, as the tools do: Dune (2021) [tmdb:438631].
- Take numbers from the tools' answers in this conversation, never from memory. Where you have none, search.
- When the user asks for a title and several fit, list those and ask which one. When one fits, go on.
- Request only what the user asked for. For a series find out which seasons they want, if they did not say.
- Say what came of it: requested, waiting for approval, in the library already, or refused and why."""


class SeerrSettings(SkillSettings):
    """Seerr."""

    seerr_url: str | None = Field(default=None, description="Overseerr's or Jellyseerr's address, for `media`")
    seerr_api_key: SecretStr | None = Field(default=None, description="Its API key")

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.seerr_url and not self.seerr_api_key:
            raise ValueError("CALLBOARD_SEERR_URL is set: give its key in CALLBOARD_SEERR_API_KEY")
        return self


class Seerr(Skill):
    """Movies and series, to be found, requested and reported on: the tools `media_…`.

    `url` is the address of a Seerr, Overseerr or Jellyseerr, `key` its API key, which acts as its owner.
    """

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key
        self._shown = ShownTitles()
        super().__init__(
            "media",
            "Finds movies and series, requests them, reports what is wrong with them: Seerr.",
            _PROMPT,
            (
                self.media_trending,
                self.media_discover,
                self.media_search,
                self.media_details,
                self.media_request,
                self.media_requests,
                self.media_report_issue,
            ),
            secrets=(key, *secrets_in_url(url)),
        )

    @classmethod
    def from_settings(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Return the skill for the Seerr of the environment. Raises `NotSetUp`, `SettingsError`."""
        settings = SeerrSettings.load(variables)
        if settings.seerr_url is None or settings.seerr_api_key is None:
            raise settings.not_set_up()
        return cls(settings.seerr_url, settings.seerr_api_key.get_secret_value())

    def _connect(self) -> AbstractAsyncContextManager[SeerrClient]:
        return connect(self._url, self._key)

    @tool(read_only=True)
    async def media_trending(
        self,
        media_type: MediaType | Literal["all"] = "all",
        page: Page = 1,
        language: Language | None = None,
    ) -> str:
        """Lists what is trending today, and whether each title is in the library.

        Each line ends with the title's number as [tmdb:ID], which the other media tools take.

        Args:
            media_type: `movie` or `tv` (series) to see only these, or `all`.
            page: Which page; the answer says whether there are more.
            language: The language of titles and plots, such as `de` or `pt-BR`; without it the server's own.
        """
        async with self._connect() as seerr:
            entries = await seerr.get(Entries, "/discover/trending", page=page, language=language)
        self._shown.add(entries.results)
        # Filtered here: Overseerr does not know the parameter that newer versions have for it.
        return render_list(f"Trending, page {page}", entries, None if media_type == "all" else media_type)

    @tool(read_only=True)
    async def media_discover(
        self,
        media_type: MediaType,
        genre: Text | None = None,
        year_from: Annotated[int, Field(ge=1870, le=2200)] | None = None,
        year_to: Annotated[int, Field(ge=1870, le=2200)] | None = None,
        min_rating: Annotated[float, Field(ge=0, le=10)] | None = None,
        order: Order = "popular",
        page: Page = 1,
    ) -> str:
        """Lists titles that fit a taste: a genre, years, a rating, what is new or comes soon.

        For titles whose name is known use media_search. Each line has the title's number as [tmdb:ID].

        Args:
            media_type: `movie`, or `tv` for series.
            genre: A genre by its name, such as "Comedy".
            year_from: Only what came out in this year or later.
            year_to: Only what came out in this year or earlier.
            min_rating: Only what is rated so or better, of 10.
            order: What comes first: `popular`, best `rating`, `newest`, or the most popular of what is `upcoming`.
            page: Which page; the answer says whether there are more.
        """
        first, last = _bound_dates(order, year_from, year_to)
        dated = "primaryReleaseDate" if media_type == "movie" else "firstAirDate"
        column = "primary_release_date" if media_type == "movie" else "first_air_date"
        sorting = {"rating": "vote_average.desc", "newest": f"{column}.desc"}.get(order, "popularity.desc")
        async with self._connect() as seerr:
            query: dict[str, str | float | None] = {
                "page": page,
                "sortBy": sorting,
                "genre": await _find_genre(seerr, media_type, genre) if genre else None,
                f"{dated}Gte": first,
                f"{dated}Lte": last,
                "voteAverageGte": min_rating,
                "voteCountGte": MIN_VOTES if order == "rating" or min_rating else None,
            }
            path = "/discover/movies" if media_type == "movie" else "/discover/tv"
            entries = await seerr.get(Entries, path, **query)
        self._shown.add(entries.results, media_type)
        return render_list(f"{'Movies' if media_type == 'movie' else 'Series'}, page {page}", entries)

    @tool(read_only=True)
    async def media_search(self, query: Text, media_type: MediaType | None = None, page: Page = 1) -> str:
        """Finds movies, series and people by name, and says whether each title is in the library.

        Use it before media_request whenever the number of the title is not known yet. Where several
        titles fit what the user said, ask which one they mean; do not guess. Each line has the
        title's number as [tmdb:ID].

        Args:
            query: The title or the name alone, without a year or words such as "movie".
            media_type: `movie` or `tv` (series) to see only these; leave out for all, people included.
            page: Which page; the answer says whether there are more.
        """
        async with self._connect() as seerr:
            entries = await seerr.get(Entries, "/search", query=query, page=page)
        self._shown.add(entries.results)
        return render_list(f"Found for '{query}', page {page}", entries, media_type)

    @tool(read_only=True)
    async def media_details(self, tmdb_id: TmdbId, media_type: MediaType) -> str:
        """Tells all about one movie or series: plot, genres, length or seasons, people, and what of it is in the library.

        Args:
            tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
            media_type: `movie`, or `tv` for a series. The same number is another title as the other kind.
        """  # noqa: E501 - the model's text, as it was before
        async with self._connect() as seerr:
            return _render_details(await _read_details(seerr, tmdb_id, media_type), media_type)

    @tool
    async def media_request(
        self,
        tmdb_id: TmdbId,
        media_type: MediaType,
        title: Text,
        seasons: Literal["all"] | list[SeasonNumber] | None = None,
    ) -> str:
        """Requests a movie, or seasons of a series, for the library. This starts a download on the user's own server.

        Only for a title that the user chose. Take its number from an earlier answer; where there is
        none, or several titles fit, use media_search and ask first.

        Args:
            tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
            media_type: `movie`, or `tv` for a series.
            title: The title that belongs to the number, as the earlier answer had it.
            seasons: For a series, which is required: `all`, or a list of numbers such as [1, 2]. Leave out for a movie.
        """
        async with self._connect() as seerr:
            details = await _read_details(seerr, tmdb_id, media_type)
            check_title(details, media_type, title, self._shown)
            body: dict[str, object] = {"mediaType": media_type, "mediaId": tmdb_id, "is4k": False}
            match media_type:
                case "movie":
                    if details.media_info and details.media_info.status in (PENDING, PROCESSING, AVAILABLE):
                        found = render_availability(details.media_info)
                        return f"Nothing to request: {render_title(details, media_type)} is {found}."
                case "tv":
                    body["seasons"] = _check_seasons(details, seasons)
                case _:
                    assert_never(media_type)
            made = await seerr.post(Made, "/request", body)
        return _render_made(made, details, media_type)

    @tool(read_only=True)
    async def media_requests(
        self,
        state: Literal["all", "pending", "approved", "processing", "available", "failed"] = "all",
        page: Page = 1,
    ) -> str:
        """Lists what was requested, newest first: by whom, whether it was approved, whether it is there by now.

        Args:
            state: Only requests that wait for approval (`pending`), are `approved`, are `processing`, `available`
                or `failed`; leave out for all.
            page: Which page; the answer says whether there are more.
        """
        async with self._connect() as seerr:
            found = await seerr.get(Requests, "/request", take=PAGE_SIZE, skip=PAGE_SIZE * (page - 1), filter=state)
            lines = await asyncio.gather(*(_render_request(seerr, request) for request in found.results))
        if not lines:
            return "No such requests." if page == 1 else "No more requests."
        if page < found.pages:
            lines.append(f"More with page={page + 1}, of {found.pages}.")
        return "\n".join((f"{found.total} requests, page {page}:", *lines))

    @tool
    async def media_report_issue(
        self,
        tmdb_id: TmdbId,
        media_type: MediaType,
        title: Text,
        problem: Literal["video", "audio", "subtitles", "other"],
        message: Text,
        season: SeasonNumber | None = None,
        episode: Annotated[int, Field(ge=1)] | None = None,
    ) -> str:
        """Reports that something is wrong with a title in the library, to whoever runs it.

        Args:
            tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
            media_type: `movie`, or `tv` for a series.
            title: The title that belongs to the number, as the earlier answer had it.
            problem: What is wrong: `video`, `audio`, `subtitles`, or `other`.
            message: What is wrong, in the user's words.
            season: For a series: which season. Leave out where it is all of them.
            episode: For a series, with its season: which episode. Leave out where it is all of them.
        """
        async with self._connect() as seerr:
            details = await _read_details(seerr, tmdb_id, media_type)
            check_title(details, media_type, title, self._shown)
            if details.media_info is None:
                title = render_title(details, media_type)
                raise ToolError(f"{title} is not in the library: there is nothing to report on.")
            body: dict[str, object] = {
                "issueType": ISSUE_TYPES[problem],
                "message": message,
                "mediaId": details.media_info.id,
            }
            if media_type == "tv":
                # 0 is all of them.
                body |= {"problemSeason": season or 0, "problemEpisode": episode or 0}
            made = await seerr.post(Made, "/issue", body)
        return f"Reported as issue {made.id}: {problem} of {render_title(details, media_type)}."


async def _read_details(seerr: SeerrClient, tmdb_id: int, media_type: MediaType) -> Details:
    """Return all that Seerr has of a title. Raises `ToolError`: Seerr says 500 where TMDB has no such number."""
    return await seerr.get(Details, f"/{media_type}/{tmdb_id}")


def _bound_dates(order: Order, year_from: int | None, year_to: int | None) -> tuple[str | None, str | None]:
    first = date(year_from, 1, 1) if year_from else None
    last = date(year_to, 12, 31) if year_to else None
    today = datetime.now(UTC).date()
    match order:
        case "newest":
            # What TMDB has announced for years ahead is not new.
            last = min(last or today, today)
        case "upcoming":
            first = max(first or today, today)
        case "popular" | "rating":
            pass
    return first.isoformat() if first else None, last.isoformat() if last else None


async def _find_genre(seerr: SeerrClient, media_type: MediaType, name: str) -> int:
    genres = await seerr.get(tuple[Named, ...], f"/genres/{media_type}")
    for genre in genres:
        if genre.name.casefold() == name.casefold():
            return genre.id
    known = ", ".join(genre.name for genre in genres)
    raise ToolError(f"There is no genre '{flatten(name, 100)}' here. Give one of these: {known}.")


def _render_details(details: Details, media_type: MediaType) -> str:
    directors = [person for person in details.crew if person.job == "Director"]
    cast = [
        f"{person.name} ({person.character})" if person.character else person.name for person in details.cast[:MAX_CAST]
    ]
    facts = {
        "Library": render_availability(details.media_info),
        "State": details.status,
        "Released": details.release_date or details.first_air_date,
        "Rated": f"{details.vote_average:.1f} of 10" if details.vote_average else None,
        "Genres": _join_names(details.genres),
        "Length": f"{details.runtime} min" if details.runtime else None,
        "On": _join_names(details.networks),
        "Directed by": _join_names(directors),
        "With": ", ".join(cast),
        "Seasons": "; ".join(_render_seasons(details)),
        "Tagline": details.tagline,
        "Plot": flatten(details.overview or ""),
    }
    return "\n".join((render_title(details, media_type), *(f"{name}: {fact}" for name, fact in facts.items() if fact)))


def _join_names(named: Iterable[Named]) -> str:
    return ", ".join(one.name for one in named if one.name)


def _render_seasons(details: Details) -> list[str]:
    states = (
        {season.season_number: season.status for season in details.media_info.seasons} if details.media_info else {}
    )
    return [
        f"{season.season_number or 'specials'} ({season.episode_count} episodes, "
        f"{AVAILABILITY.get(states.get(season.season_number, 1))})"
        for season in details.seasons
    ]


def _check_seasons(details: Details, seasons: Literal["all"] | list[int] | None) -> Literal["all"] | list[int]:
    """Return the seasons to ask for. Raises `ToolError` for none, and for those that the series has not."""
    there = [season.season_number for season in details.seasons]
    if not seasons:
        raise ToolError(f"Say which seasons: 'all', or a list of numbers. {render_title(details, 'tv')} has {there}.")
    if seasons != "all" and (unknown := sorted(set(seasons) - set(there))):
        raise ToolError(f"{render_title(details, 'tv')} has no season {unknown}: it has {there}.")
    return seasons


def _render_made(made: Made, details: Details, media_type: MediaType) -> str:
    if made.id is None:
        # Seerr says 202 where every season is there or asked for.
        reason = made.message or "it is there, or requested."
        return f"Nothing to request of {render_title(details, media_type)}: {reason}"
    state = REQUEST_STATES.get(made.status or 0, "made")
    seasons = ", ".join(str(season.season_number) for season in made.seasons)
    part = f", season {seasons}" if seasons else ""
    return f"Requested as request {made.id}: {render_title(details, media_type)}{part}. It is {state}."


async def _render_request(seerr: SeerrClient, request: Request) -> str:
    tmdb_id = request.media.tmdb_id or 0
    try:
        name = render_title(await _read_details(seerr, tmdb_id, request.type), request.type)
    except ToolError:
        # One title that TMDB has lost must not hide the other requests.
        name = f"A {KINDS[request.type]} whose title cannot be read [tmdb:{tmdb_id}]"
    who = request.requested_by or "somebody"
    seasons = ", ".join(str(season.season_number) for season in request.seasons)
    return (
        f"- {name}{f', season {seasons}' if seasons else ''}: {REQUEST_STATES.get(request.status, 'made')}, "
        f"{render_availability(request.media)}. Request {request.id} of {who}, "
        f"{request.created_at[:10]}"
    )
