"""API models of Seerr, as far as its answers are read: the shapes of its API v1, whatever else they hold.

Movies and series share one shape here: a movie has `title` and `releaseDate` where a series
has `name` and `firstAirDate`. TMDB, where Seerr has it from, leaves out or nulls any of them.
"""

from typing import Literal

from pydantic import AliasPath, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MediaType = Literal["movie", "tv"]


class Wire(BaseModel):
    """One object of an answer."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class SeasonState(Wire):
    """A season as the library has it, or as a request names it."""

    season_number: int
    status: int = 1


class MediaInfo(Wire):
    """State of a title in Seerr; `id` is Seerr's own number, not TMDB's."""

    id: int
    status: int = 1
    tmdb_id: int | None = None
    seasons: tuple[SeasonState, ...] = ()


class Entry(Wire):
    """One result of a list: a movie, a series, or a person with what they are known for."""

    id: int
    media_type: str = ""
    title: str | None = None
    name: str | None = None
    original_title: str | None = None
    original_name: str | None = None
    release_date: str | None = None
    first_air_date: str | None = None
    overview: str | None = None
    vote_average: float | None = None
    media_info: MediaInfo | None = None
    known_for: tuple["Entry", ...] = ()


class Entries(Wire):
    """A page of results, 20 at most."""

    page: int
    total_pages: int
    results: tuple[Entry, ...]


class Named(Wire):
    """Anything with a name: a genre, a network, a member of the cast or the crew."""

    id: int
    name: str = ""
    job: str | None = None
    character: str | None = None


class Season(Wire):
    """A season as TMDB has it; number 0 holds the specials."""

    season_number: int
    episode_count: int = 0
    air_date: str | None = None


class Details(Entry):
    """All about one movie or series."""

    status: str | None = None
    tagline: str | None = None
    runtime: int | None = None
    genres: tuple[Named, ...] = ()
    networks: tuple[Named, ...] = ()
    cast: tuple[Named, ...] = Field(default=(), validation_alias=AliasPath("credits", "cast"))
    crew: tuple[Named, ...] = Field(default=(), validation_alias=AliasPath("credits", "crew"))
    seasons: tuple[Season, ...] = ()


class Made(Wire):
    """A request or an issue that was made; without an `id` nothing was, and `message` says why."""

    id: int | None = None
    status: int | None = None
    message: str = ""
    seasons: tuple[SeasonState, ...] = ()


class Request(Wire):
    """A request in a list. Seerr gives no title with it, only the number of one."""

    id: int
    type: MediaType
    status: int
    media: MediaInfo
    seasons: tuple[SeasonState, ...] = ()
    requested_by: str | None = Field(default=None, validation_alias=AliasPath("requestedBy", "displayName"))
    created_at: str = ""


class Requests(Wire):
    """A page of requests, newest first, how many pages there are, and how many requests in all."""

    pages: int = Field(validation_alias=AliasPath("pageInfo", "pages"))
    total: int = Field(validation_alias=AliasPath("pageInfo", "results"))
    results: tuple[Request, ...]
