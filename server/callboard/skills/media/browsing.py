"""The tools that look: what is trending, what fits a taste, what has a name, and all about one title."""

from datetime import UTC, date, datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from callboard.errors import ToolError
from callboard.skills.media.seerr import Seerr, connect
from callboard.skills.media.wire import Details, Entries, MediaType, Named
from callboard.skills.media.wording import AVAILABILITY, availability, listed, one_line, titled
from callboard.tools import ToolContext, tool

MAX_CAST = 6
MIN_VOTES = 200
"""Below it a rating says little: TMDB's best rated titles would be those with one vote."""

Page = Annotated[int, Field(ge=1, le=500)]
TmdbId = Annotated[int, Field(ge=1)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})?$")]
Order = Literal["popular", "rating", "newest", "upcoming"]


@tool(read_only=True)
async def media_trending(
    context: ToolContext,
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
    async with connect(context.services.settings) as seerr:
        entries = await seerr.get(Entries, "/discover/trending", page=page, language=language)
    # Filtered here: Overseerr does not know the parameter that newer versions have for it.
    return listed(f"Trending, page {page}", entries, None if media_type == "all" else media_type)


@tool(read_only=True)
async def media_discover(
    context: ToolContext,
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
    first, last = _dates(order, year_from, year_to)
    dated = "primaryReleaseDate" if media_type == "movie" else "firstAirDate"
    column = "primary_release_date" if media_type == "movie" else "first_air_date"
    sorting = {"rating": "vote_average.desc", "newest": f"{column}.desc"}.get(order, "popularity.desc")
    async with connect(context.services.settings) as seerr:
        query: dict[str, str | float | None] = {
            "page": page,
            "sortBy": sorting,
            "genre": await _genre_number(seerr, media_type, genre) if genre else None,
            f"{dated}Gte": first,
            f"{dated}Lte": last,
            "voteAverageGte": min_rating,
            "voteCountGte": MIN_VOTES if order == "rating" or min_rating else None,
        }
        path = "/discover/movies" if media_type == "movie" else "/discover/tv"
        entries = await seerr.get(Entries, path, **query)
    return listed(f"{'Movies' if media_type == 'movie' else 'Series'}, page {page}", entries)


@tool(read_only=True)
async def media_search(context: ToolContext, query: Text, media_type: MediaType | None = None, page: Page = 1) -> str:
    """Finds movies, series and people by name, and says whether each title is in the library.

    Use it before media_request whenever the number of the title is not known yet. Where several
    titles fit what the user said, ask which one they mean; do not guess. Each line has the
    title's number as [tmdb:ID].

    Args:
        query: The title or the name alone, without a year or words such as "movie".
        media_type: `movie` or `tv` (series) to see only these; leave out for all, people included.
        page: Which page; the answer says whether there are more.
    """
    async with connect(context.services.settings) as seerr:
        entries = await seerr.get(Entries, "/search", query=query, page=page)
    return listed(f"Found for '{query}', page {page}", entries, media_type)


@tool(read_only=True)
async def media_details(context: ToolContext, tmdb_id: TmdbId, media_type: MediaType) -> str:
    """Tells all about one movie or series: plot, genres, length or seasons, people, and what of it is in the library.

    Args:
        tmdb_id: Its number, the ID of [tmdb:ID] in an earlier answer.
        media_type: `movie`, or `tv` for a series. The same number is another title as the other kind.
    """
    async with connect(context.services.settings) as seerr:
        return _described(await details_of(seerr, tmdb_id, media_type), media_type)


async def details_of(seerr: Seerr, tmdb_id: int, media_type: MediaType) -> Details:
    """All that Seerr has of a title. Raises `ToolError`: Seerr says 500 where TMDB has no such number."""
    return await seerr.get(Details, f"/{media_type}/{tmdb_id}")


def _dates(order: Order, year_from: int | None, year_to: int | None) -> tuple[str | None, str | None]:
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


async def _genre_number(seerr: Seerr, media_type: MediaType, name: str) -> int:
    genres = await seerr.get(tuple[Named, ...], f"/genres/{media_type}")
    for genre in genres:
        if genre.name.casefold() == name.casefold():
            return genre.id
    known = ", ".join(genre.name for genre in genres)
    raise ToolError(f"There is no genre '{one_line(name, 100)}' here. Give one of these: {known}.")


def _described(details: Details, media_type: MediaType) -> str:
    directors = [person.name for person in details.credits.crew if person.job == "Director"]
    cast = [
        f"{person.name} ({person.character})" if person.character else person.name
        for person in details.credits.cast[:MAX_CAST]
    ]
    facts = {
        "Library": availability(details.media_info),
        "State": details.status,
        "Released": details.release_date or details.first_air_date,
        "Rated": f"{details.vote_average:.1f} of 10" if details.vote_average else None,
        "Genres": ", ".join(genre.name for genre in details.genres),
        "Length": f"{details.runtime} min" if details.runtime else None,
        "On": ", ".join(network.name for network in details.networks),
        "Directed by": ", ".join(directors),
        "With": ", ".join(cast),
        "Seasons": "; ".join(_seasons(details)),
        "Tagline": details.tagline,
        "Plot": one_line(details.overview or ""),
    }
    return "\n".join((titled(details, media_type), *(f"{name}: {fact}" for name, fact in facts.items() if fact)))


def _seasons(details: Details) -> list[str]:
    states = (
        {season.season_number: season.status for season in details.media_info.seasons} if details.media_info else {}
    )
    return [
        f"{season.season_number or 'specials'} ({season.episode_count} episodes, "
        f"{AVAILABILITY.get(states.get(season.season_number, 1))})"
        for season in details.seasons
    ]
