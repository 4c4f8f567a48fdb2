"""Time zones by their IANA names; the data is the system's, or the `tzdata` package's. Pure, but for those files."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from callboard.errors import ToolError

NEAREST = 5


def zone(name: str) -> ZoneInfo:
    """The zone of that name, whatever its case; raises `ToolError` with the nearest names where there is none."""
    wanted = _plain(name)
    if known := _names().get(wanted):
        return ZoneInfo(known)
    near = list(dict.fromkeys(_near(wanted)))[:NEAREST]
    hint = f"the nearest are {', '.join(near)}." if near else "give one such as Europe/Berlin or Asia/Tokyo."
    raise ToolError(f"There is no time zone '{name}': {hint}")


def _near(wanted: str) -> Iterator[str]:
    """Zones of that city first, then those with it in their names, then those spelt alike."""
    names = _names()
    place = wanted.rpartition("/")[2]
    if len(place) > 1:
        yield from sorted((names[one] for one in names if one.rpartition("/")[2] == place), key=len)
        yield from sorted((names[one] for one in names if place in one), key=len)
    cities = {one.rpartition("/")[2]: names[one] for one in names}
    yield from (names[one] for one in get_close_matches(wanted, names, NEAREST))
    yield from (cities[one] for one in get_close_matches(place, cities, NEAREST))


@cache
def _names() -> dict[str, str]:
    return {_plain(name): name for name in sorted(available_timezones())}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
