"""Texts for the model: a line for each title with its number at TMDB, and Seerr's status numbers in words."""

import re
from collections import OrderedDict
from collections.abc import Iterable

from callboard.skills.actions import one_line
from callboard.skills.media.models import Entries, Entry, MediaInfo, MediaType

MAX_OVERVIEW_CHARS = 160
MAX_SHOWN = 5_000
MAX_KNOWN_FOR = 5

ABSENT = "not in the library"
AVAILABILITY = {
    1: ABSENT,
    2: "requested, waiting for approval",
    3: "requested, on its way",
    4: "partly available",
    5: "available",
    # 6 means deleted in Overseerr, and blocked in Jellyseerr and Seerr.
    6: "deleted, or blocked by the admin of Seerr",
    7: "deleted",
}
"""Seerr's `MediaStatus`."""

REQUEST_STATES = {1: "waiting for approval", 2: "approved", 3: "declined", 4: "failed", 5: "done"}
"""Seerr's `MediaRequestStatus`."""

_WRITTEN_TITLE = re.compile(
    r"(?P<name>.+?)(?: \((?:\d{4}|no date)\))?(?:, (?:movie|series))?:? *\[tmdb: ?(?P<number>\d{1,12})\]"
)
"""A title as `render_title` writes it and as the prompt asks models to write it."""

KINDS: dict[MediaType, str] = {"movie": "movie", "tv": "series"}


def render_availability(info: MediaInfo | None) -> str:
    """Return the availability of a title in words."""
    return ABSENT if info is None else AVAILABILITY.get(info.status, f"in an unknown state ({info.status})")


def render_title(entry: Entry, kind: MediaType | None = None) -> str:
    """Return for example `Mortal Kombat (2021), movie [tmdb:460465]`. `kind` is used if the entry has none."""
    name = one_line(entry.title or entry.original_title or "Untitled")
    return f"{name} ({entry.year or 'no date'}), {KINDS[kind or entry.kind]} [tmdb:{entry.id}]"


def render_list(heading: str, entries: Entries, media_type_filter: MediaType | None = None) -> str:
    """Return a page of results, restricted to one media type if a filter is given."""
    wanted = {media_type_filter} if media_type_filter else {"movie", "tv", "person"}
    lines = [_render_line(entry) for entry in entries.results if entry.media_type in wanted]
    if not lines:
        lines = ["Nothing on this page." if entries.page < entries.total_pages else "Nothing found."]
    if entries.page < entries.total_pages:
        lines.append(f"More with page={entries.page + 1}, of {entries.total_pages}.")
    return "\n".join((f"{heading}:", *lines))


class ShownTitles:
    """The names under which titles were shown, because lists may be in another language than details."""

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[MediaType, int], frozenset[str]] = OrderedDict()

    def add(self, entries: Iterable[Entry], kind: MediaType | None = None) -> None:
        """Remember the entries' names.

        Beyond `MAX_SHOWN` titles the oldest are forgotten. `kind` as in `render_title`.
        """
        for entry in entries:
            key = kind or entry.kind, entry.id
            self._names[key] = self._names.pop(key, frozenset()) | _normalized_names(entry)
            if len(self._names) > MAX_SHOWN:
                self._names.popitem(last=False)

    def names(self, kind: MediaType, number: int) -> frozenset[str]:
        """Return the names of a title, reduced to letters and digits."""
        return self._names.get((kind, number), frozenset())


def bare_title(entry: Entry, expected: str) -> str:
    """Return a title, which may be written as by `render_title`, without the entry's year and number."""
    written = _WRITTEN_TITLE.fullmatch(expected)
    if written and int(written["number"]) == entry.id:
        return written["name"]
    return expected.removesuffix(f" ({entry.year})")


def is_title(entry: Entry, kind: MediaType, title: str, shown: ShownTitles) -> bool:
    """Return whether the entry is known here by the title, with or without its year."""
    known = _normalized_names(entry) | shown.names(kind, entry.id)
    return _normalize_title(title) in known | {name + entry.year for name in known}


def is_first(entry: Entry, kind: MediaType, title: str, found: Entries) -> bool:
    """Return whether a search for the title finds the entry first, and no other one that is called so."""
    titles = [one for one in found.results if one.media_type == kind]
    return [one.id for one in titles[:1]] == [entry.id] and not any(
        _normalize_title(title) in _normalized_names(one) for one in titles[1:]
    )


def _normalized_names(entry: Entry) -> frozenset[str]:
    return frozenset(_normalize_title(name) for name in (entry.title, entry.original_title) if name)


def _normalize_title(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold())) or text.strip()


def _render_line(entry: Entry) -> str:
    if entry.media_type == "person":
        titles = [render_title(title) for title in entry.known_for[:MAX_KNOWN_FOR]]
        return f"- {one_line(entry.title or 'Unnamed')} (a person), known for: {'; '.join(titles) or 'nothing here'}"
    rating = f", rated {entry.vote_average:.1f}" if entry.vote_average else ""
    overview = one_line(entry.overview, MAX_OVERVIEW_CHARS)
    return f"- {render_title(entry)}: {render_availability(entry.media_info)}{rating}. {overview}".rstrip()
