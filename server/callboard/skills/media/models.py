"""Models of Seerr's API v1, with only the fields that are read.

Movies and series share one class: a movie has `title` and `releaseDate`, a series `name` and `firstAirDate`. Their data
comes from TMDB, where any field may be missing or null. The client removes nulls. Lists leave out results that cannot
be read.
"""

from typing import Literal

from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, OnErrorOmit
from pydantic.alias_generators import to_camel

MediaType = Literal["movie", "tv"]


class Wire(BaseModel):
    """An object in an answer of Seerr."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class SeasonState(Wire):
    """The state of a season in the library, or of a season in a request."""

    season_number: int
    status: int = 1


class MediaInfo(Wire):
    """The state of a title in Seerr. `id` is Seerr's own number, not TMDB's."""

    id: int
    status: int = 1
    tmdb_id: int | None = None
    seasons: tuple[SeasonState, ...] = ()


class Entry(Wire):
    """A result in a list: a movie, a series, or a person with the titles they are known for."""

    id: int
    media_type: str = ""
    title: str = Field(default="", validation_alias=AliasChoices("title", "name"))
    original_title: str = Field(default="", validation_alias=AliasChoices("originalTitle", "originalName"))
    released: str = Field(default="", validation_alias=AliasChoices("releaseDate", "firstAirDate"))
    overview: str = ""
    vote_average: float = 0
    media_info: MediaInfo | None = None
    known_for: tuple["Entry", ...] = ()

    @property
    def kind(self) -> MediaType:
        """The kind of a title in a list. Details do not name theirs."""
        return "tv" if self.media_type == "tv" else "movie"

    @property
    def year(self) -> str:
        """The year of its release, empty if it is not known."""
        return self.released[:4]


class Entries(Wire):
    """A page of at most 20 results."""

    page: int
    total_pages: int
    results: tuple[OnErrorOmit[Entry], ...]


class NamedThing(Wire):
    """An object with a name: a genre, a network, a member of the cast or crew."""

    id: int
    name: str = ""
    job: str = ""
    character: str = ""


class Season(Wire):
    """A season at TMDB. Number 0 contains the specials."""

    season_number: int
    episode_count: int = 0


class Details(Entry):
    """All facts about one movie or series."""

    status: str = ""
    tagline: str = ""
    runtime: int = 0
    genres: tuple[NamedThing, ...] = ()
    networks: tuple[NamedThing, ...] = ()
    cast: tuple[NamedThing, ...] = Field(default=(), validation_alias=AliasPath("credits", "cast"))
    crew: tuple[NamedThing, ...] = Field(default=(), validation_alias=AliasPath("credits", "crew"))
    seasons: tuple[Season, ...] = ()


class Created(Wire):
    """A new request or issue. Without an `id` nothing was created, and `message` gives the reason."""

    id: int | None = None
    status: int = 0
    message: str = ""
    seasons: tuple[SeasonState, ...] = ()


class Request(Wire):
    """A request in a list. Seerr sends only the title's number, not its name."""

    id: int
    type: MediaType
    status: int
    media: MediaInfo | None = None
    seasons: tuple[SeasonState, ...] = ()
    requested_by: str = Field(default="an unknown user", validation_alias=AliasPath("requestedBy", "displayName"))
    created_at: str = ""


class Requests(Wire):
    """A page of requests, newest first, with the number of pages and of all requests."""

    pages: int = Field(validation_alias=AliasPath("pageInfo", "pages"))
    total: int = Field(validation_alias=AliasPath("pageInfo", "results"))
    results: tuple[OnErrorOmit[Request], ...]
