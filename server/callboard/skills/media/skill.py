"""The `media` skill: movies and series, through Seerr.

Agents can require approval for the tools that change something.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from functools import partial
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, StringConstraints, model_validator

from callboard.calls import tool
from callboard.errors import ToolError
from callboard.redaction import secrets_in_url
from callboard.settings import SkillSettings
from callboard.skills.actions import one_line
from callboard.skills.media.client import SeerrClient, connect
from callboard.skills.media.models import Created, Details, Entries, MediaType, NamedThing, Request, Requests
from callboard.skills.media.rendering import (
    AVAILABILITY,
    KINDS,
    REQUEST_STATES,
    ShownTitles,
    bare_title,
    is_first,
    is_title,
    render_availability,
    render_list,
    render_title,
)
from callboard.skills.skill import Skill

MAX_CAST = 6
MIN_VOTES = 200
"""With fewer votes a rating means little: TMDB's best rated titles would be those with one vote."""
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
The media tools list trending titles, find titles and people, and show what the user's library has.
- Whenever you name a title, write its year and its number after it, as the tools do: Dune (2021) [tmdb:438631].
- Take numbers from the tools' answers in this conversation, never from memory. If you have none, search.
- When the user asks for a title and several match, list them and ask which one. When one matches, continue.
- Request only what the user asked for. For a series ask which seasons they want, if they did not say.
- Report the outcome: requested, waiting for approval, in the library already, or refused and why."""


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
    """Finds, requests and reports problems with movies and series: the tools `media_…`.

    `url` is the address of a Seerr, Overseerr or Jellyseerr. `key` is its API key, which acts as its owner.
    """

    def __init__(self, url: str, key: str) -> None:
        self._connect = partial(connect, url, key)
        self._shown = ShownTitles()
        super().__init__(
            "media",
            "Finds movies and series, requests them, and reports problems with them, through Seerr.",
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

    @tool(read_only=True)
    async def media_trending(
        self,
        media_type: MediaType | Literal["all"] = "all",
        page: Page = 1,
        language: Language | None = None,
    ) -> str:
        """Lists the titles that are trending today, and whether each is in the library.

        Each line ends with the title's number as [tmdb:ID], which the other media tools take.

        Args:
            media_type: `movie` or `tv` (series) to see only these, or `all`.
            page: The page; the answer says whether there are more.
            language: The language of titles and plots, such as `de` or `pt-BR`; by default the server's own.
        """
        async with self._connect() as seerr:
            entries = await seerr.get(Entries, "/discover/trending", page=page, language=language)
        self._shown.add(entries.results)
        # Filtered here, because Overseerr lacks the parameter that newer versions have.
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
        """Lists titles by genre, years and rating, or titles that are new or coming soon.

        For titles whose name is known use media_search. Each line has the title's number as [tmdb:ID].

        Args:
            media_type: `movie`, or `tv` for series.
            genre: The name of a genre, such as "Comedy".
            year_from: Only titles from this year or later.
            year_to: Only titles from this year or earlier.
            min_rating: Only titles with this rating or a better one, of 10.
            order: The order: `popular`, best `rating`, `newest`, or the most popular of the `upcoming` titles.
            page: The page; the answer says whether there are more.
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

        Use it before media_request whenever the number of the title is not known yet. If several titles match, ask the
        user which one they mean; do not guess. Each line has the title's number as [tmdb:ID].

        Args:
            query: Only the title or the name, without a year or words such as "movie".
            media_type: `movie` or `tv` (series) to see only these; leave out for all, people included.
            page: The page; the answer says whether there are more.
        """
        async with self._connect() as seerr:
            entries = await seerr.get(Entries, "/search", query=query, page=page)
        self._shown.add(entries.results)
        return render_list(f"Found for '{query}', page {page}", entries, media_type)

    @tool(read_only=True)
    async def media_details(self, tmdb_id: TmdbId, media_type: MediaType) -> str:
        """Shows one movie or series: plot, genres, length or seasons, people, and what the library has of it.

        Args:
            tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
            media_type: `movie`, or `tv` for a series. The same number is another title as the other kind.
        """
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

        Only for a title that the user chose. Take its number from an earlier answer. If there is none, or several
        titles match, use media_search and ask first.

        Args:
            tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
            media_type: `movie`, or `tv` for a series.
            title: The title that belongs to the number, as the earlier answer had it.
            seasons: For a series, which is required: `all`, or a list of numbers such as [1, 2]. Leave out for a movie.
        """
        async with self._connect() as seerr:
            details = await _read_details(seerr, tmdb_id, media_type)
            await self._check_title(seerr, details, media_type, title)
            body: dict[str, object] = {"mediaType": media_type, "mediaId": tmdb_id, "is4k": False}
            if media_type == "tv":
                body["seasons"] = _check_seasons(details, seasons)
            elif details.media_info and details.media_info.status in (PENDING, PROCESSING, AVAILABLE):
                found = render_availability(details.media_info)
                return f"Nothing to request: {render_title(details, media_type)} is {found}."
            created = await seerr.post(Created, "/request", body)
        return _render_outcome(created, details, media_type)

    @tool(read_only=True)
    async def media_requests(
        self,
        state: Literal["all", "pending", "approved", "processing", "available", "failed"] = "all",
        page: Page = 1,
    ) -> str:
        """Lists the requests, newest first: by whom, whether they were approved, and whether the titles are available.

        Args:
            state: Only requests that wait for approval (`pending`), are `approved`, are `processing`, `available`
                or `failed`; leave out for all.
            page: The page; the answer says whether there are more.
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
        """Reports a problem with a title in the library to its admin.

        Args:
            tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
            media_type: `movie`, or `tv` for a series.
            title: The title that belongs to the number, as the earlier answer had it.
            problem: The kind of problem: `video`, `audio`, `subtitles`, or `other`.
            message: The problem in the user's words.
            season: For a series: the season. Leave out for all seasons.
            episode: For a series, with its season: the episode. Leave out for all episodes.
        """
        async with self._connect() as seerr:
            details = await _read_details(seerr, tmdb_id, media_type)
            await self._check_title(seerr, details, media_type, title)
            if details.media_info is None:
                title = render_title(details, media_type)
                raise ToolError(f"{title} is not in the library, so no problem with it can be reported.")
            body: dict[str, object] = {
                "issueType": ISSUE_TYPES[problem],
                "message": message,
                "mediaId": details.media_info.id,
            }
            if media_type == "tv":
                # 0 means all.
                body |= {"problemSeason": season or 0, "problemEpisode": episode or 0}
            created = await seerr.post(Created, "/issue", body)
        return f"Reported as issue {created.id}: {problem} of {render_title(details, media_type)}."

    async def _check_title(self, seerr: SeerrClient, details: Details, media_type: MediaType, title: str) -> None:
        """Raise `ToolError` unless the title which the model named, and the user saw, belongs to its number."""
        bare = bare_title(details, title)
        if is_title(details, media_type, bare, self._shown):
            return
        # TMDB's search knows the titles in every language; details have the server's only.
        if not is_first(details, media_type, bare, await seerr.get(Entries, "/search", query=bare)):
            raise ToolError(
                f"Not done: that number is {render_title(details, media_type)}, not '{one_line(title, 100)}'. If it is "
                "what the user wants, call again with its title; otherwise find the right number with media_search."
            )


async def _read_details(seerr: SeerrClient, tmdb_id: int, media_type: MediaType) -> Details:
    """Return the details of a title. Raises `ToolError`, also for an unknown number, for which Seerr answers 500."""
    return await seerr.get(Details, f"/{media_type}/{tmdb_id}")


def _bound_dates(order: Order, year_from: int | None, year_to: int | None) -> tuple[str | None, str | None]:
    first = date(year_from, 1, 1) if year_from else None
    last = date(year_to, 12, 31) if year_to else None
    today = datetime.now(UTC).date()
    if order == "newest":
        # TMDB has titles that are announced for later years.
        last = min(last or today, today)
    elif order == "upcoming":
        first = max(first or today, today)
    return first.isoformat() if first else None, last.isoformat() if last else None


async def _find_genre(seerr: SeerrClient, media_type: MediaType, name: str) -> int:
    genres = await seerr.get(tuple[NamedThing, ...], f"/genres/{media_type}")
    for genre in genres:
        if genre.name.casefold() == name.casefold():
            return genre.id
    known = ", ".join(genre.name for genre in genres)
    raise ToolError(f"There is no genre '{one_line(name, 100)}'. Give one of these: {known}.")


def _render_details(details: Details, media_type: MediaType) -> str:
    directors = [person for person in details.crew if person.job == "Director"]
    cast = [
        f"{person.name} ({person.character})" if person.character else person.name for person in details.cast[:MAX_CAST]
    ]
    facts = {
        "Library": render_availability(details.media_info),
        "State": details.status,
        "Released": details.released,
        "Rated": f"{details.vote_average:.1f} of 10" if details.vote_average else None,
        "Genres": _join_names(details.genres),
        "Length": f"{details.runtime} min" if details.runtime else None,
        "On": _join_names(details.networks),
        "Directed by": _join_names(directors),
        "With": ", ".join(cast),
        "Seasons": "; ".join(_render_seasons(details)),
        "Tagline": details.tagline,
        "Plot": one_line(details.overview),
    }
    return "\n".join((render_title(details, media_type), *(f"{name}: {fact}" for name, fact in facts.items() if fact)))


def _join_names(named: Iterable[NamedThing]) -> str:
    return ", ".join(thing.name for thing in named if thing.name)


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
    """Return the seasons to request. Raises `ToolError` if none are given, or if the series does not have them."""
    existing = [season.season_number for season in details.seasons]
    if not seasons:
        raise ToolError(f"Give the seasons: 'all', or a list of numbers. {render_title(details, 'tv')} has {existing}.")
    if seasons != "all" and (unknown := sorted(set(seasons) - set(existing))):
        raise ToolError(f"{render_title(details, 'tv')} has no season {unknown}: it has {existing}.")
    return seasons


def _render_outcome(created: Created, details: Details, media_type: MediaType) -> str:
    if created.id is None:
        # Seerr answers 202 if every season is available or requested.
        reason = created.message or "it is available or requested already."
        return f"Nothing to request of {render_title(details, media_type)}: {reason}"
    state = REQUEST_STATES.get(created.status, "made")
    seasons = ", ".join(str(season.season_number) for season in created.seasons)
    part = f", season {seasons}" if seasons else ""
    return f"Requested as request {created.id}: {render_title(details, media_type)}{part}. It is {state}."


async def _render_request(seerr: SeerrClient, request: Request) -> str:
    seasons = ", ".join(str(season.season_number) for season in request.seasons)
    return (
        f"- {await _name_request(seerr, request)}{f', season {seasons}' if seasons else ''}: "
        f"{REQUEST_STATES.get(request.status, 'made')}, {render_availability(request.media)}. "
        f"Request {request.id} of {request.requested_by}, {request.created_at[:10]}"
    )


async def _name_request(seerr: SeerrClient, request: Request) -> str:
    tmdb_id = request.media.tmdb_id if request.media else None
    if tmdb_id is None:
        return f"A {KINDS[request.type]} that Seerr no longer knows"
    try:
        return render_title(await _read_details(seerr, tmdb_id, request.type), request.type)
    except ToolError:
        # A title that TMDB no longer has must not hide the other requests.
        return f"A {KINDS[request.type]} whose title cannot be read [tmdb:{tmdb_id}]"
