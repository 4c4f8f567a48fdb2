"""The `time` skill: the current time anywhere, and calculations with dates and times as people write them.

A local time may occur twice or never. Zones have IANA names; their data comes from the system or from the `tzdata`
package. Calculations use UTC, because Python subtracts two times of one zone by their local times, which is an hour
wrong across a change of the clocks.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from callboard.calls import tool
from callboard.errors import InvalidArguments, ToolError
from callboard.skills.skill import Skill

MAX_DAYS = 4_000_000
NEAREST_ZONES = 5

_CLOCK_ONLY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")

_PROMPT = "You do not know what day or time it is, and you are bad at dates: ask the tool `time`."


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time.

    `is_whole_day`: only a date was given, and `at` is its first moment. `note` explains an ambiguous time.
    """

    at: datetime
    is_whole_day: bool = False
    note: str = ""

    @property
    def local_time(self) -> datetime:
        """The local time without its zone. For a whole day it is midnight, even if the clocks skip that."""
        local = self.at.replace(tzinfo=None)
        return datetime.combine(local, time()) if self.is_whole_day else local


@tool(name="time", read_only=True)
def clock(
    zone: str = "UTC",
    start: str = "now",
    end: str | None = None,
    days: Annotated[int, Field(ge=-MAX_DAYS, le=MAX_DAYS)] = 0,
    to_zone: str | None = None,
) -> dict[str, Any]:
    """Return the current time in any time zone, and calculate with dates.

    Without arguments: now, in UTC. With `start`: that moment with its weekday, week and offset. With `days`: the day so
    many days later or earlier. With `to_zone`: the same moment in that zone. With `end`: the time between the two.

    Args:
        zone: IANA name of the zone of `start` and `end`, such as Europe/Berlin.
        start: A date or time: 2026-03-29, 2026-03-29T14:30, 14:30, today, now.
        end: A second date or time, for the difference.
        days: Days to add to `start`; negative to go back.
        to_zone: IANA name of another zone to show the moment in.
    """
    source = _find_zone(zone)
    target = _find_zone(to_zone) if to_zone else None
    now = datetime.now(UTC)
    try:
        first = _parse_moment(start, source, now)
        if days:
            first = _add_days(first, days)
        result = _describe(first, source)
        if target:
            result["there"] = _describe(Moment(first.at.astimezone(target)), target)
        if end is not None:
            last = _parse_moment(end, source, now)
            result |= {"end": _describe(last, source), "difference": _describe_difference(first, last)}
    except OverflowError:
        raise InvalidArguments("That is beyond the years 1 to 9999: give other dates.") from None
    return result


def _describe(moment: Moment, zone: ZoneInfo) -> dict[str, Any]:
    at = moment.at
    year, week, _ = at.isocalendar()
    result: dict[str, Any] = {
        "zone": zone.key,
        "date": at.date().isoformat(),
        "weekday": f"{at:%A}",
        "iso_week": f"{year:04}-W{week:02}",
        "day_of_year": at.timetuple().tm_yday,
    }
    if not moment.is_whole_day:
        result |= {"time": at.isoformat(timespec="seconds"), "utc": at.astimezone(UTC).isoformat(timespec="seconds")}
    if moment.note:
        result["note"] = moment.note
    return result


def _describe_difference(first: Moment, last: Moment) -> dict[str, Any]:
    """Return the time between two moments, by the calendar and, if a time of day was given, by the clock."""
    backwards = first.at.astimezone(UTC) > last.at.astimezone(UTC)
    start, end = (last, first) if backwards else (first, last)
    # If the clocks go back in between, the end may show an earlier local time than the start.
    between = count_calendar(start.local_time, max(start.local_time, end.local_time))
    days = (end.at.date() - start.at.date()).days
    result: dict[str, Any] = {
        "calendar": between,
        "dates_apart": days,
        "weeks": {"weeks": days // 7, "days": days % 7},
    }
    if not (start.is_whole_day and end.is_whole_day):
        passed = end.at.astimezone(UTC) - start.at.astimezone(UTC)
        result["elapsed"] = {
            "seconds": int(passed.total_seconds()),
            "text": str(passed - passed % timedelta(seconds=1)),
        }
    if backwards:
        result["note"] = "The end lies before the start: this is counted from the end to the start."
    return result


class Clock(Skill):
    """The time in any zone, and calculations with dates: the tool `time`."""

    def __init__(self) -> None:
        super().__init__("time", "Returns the time in any zone, and calculates with dates.", _PROMPT, (clock,))


def _parse_moment(text: str, zone: ZoneInfo, now: datetime) -> Moment:
    """Return the moment that a text means: ISO 8601, a time of today, `now` or `today`. Raises `InvalidArguments`."""
    written = text.strip()
    match written.lower():
        case "now":
            return Moment(now.astimezone(zone))
        case "today":
            return _resolve_local(now.astimezone(zone).date(), zone)
    try:
        if _CLOCK_ONLY.fullmatch(written):
            today = now.astimezone(zone).date()
            padded = written if written[2] == ":" else f"0{written}"
            return _resolve_local(datetime.combine(today, time.fromisoformat(padded)), zone)
        with suppress(ValueError):
            return _resolve_local(date.fromisoformat(written), zone)
        read = datetime.fromisoformat(written)
        return _resolve_local(read, zone) if read.tzinfo is None else Moment(read.astimezone(zone))
    except (ValueError, OverflowError):
        raise InvalidArguments(
            f"'{text}' is not a date or time: write 2026-03-29, 2026-03-29T14:30, 2026-03-29T14:30+02:00, 14:30, today "
            "or now."
        ) from None


def _resolve_local(local: date, zone: ZoneInfo) -> Moment:
    """Return a local time, or a date's first moment, in a zone where it may occur twice or never.

    Raises `OverflowError`.
    """
    is_whole_day = not isinstance(local, datetime)
    clock = local if isinstance(local, datetime) else datetime.combine(local, time())
    first, second = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return Moment(first, is_whole_day)
    # With the offset before the change, a skipped time becomes a time equally long after the change.
    real = first.astimezone(UTC).astimezone(zone)
    if real.replace(tzinfo=None) == clock:
        again = second.astimezone(UTC).isoformat()
        note = (
            f"{clock.isoformat()} comes twice there, as the clocks go back: the first is taken, the second is {again}."
        )
        return Moment(first, is_whole_day, "" if is_whole_day else note)
    if is_whole_day and real.date() == local:
        return Moment(real, is_whole_day)
    replacement = real.replace(tzinfo=None).isoformat()
    return Moment(
        real,
        is_whole_day,
        f"{local.isoformat()} does not exist there, as the clocks go forward: {replacement} is taken.",
    )


def _add_days(moment: Moment, days: int) -> Moment:
    """Return the same local time `days` later. Raises `OverflowError` outside of the years 1 to 9999."""
    zone = moment.at.tzinfo
    assert isinstance(zone, ZoneInfo)
    local = moment.local_time + timedelta(days=days)
    return _resolve_local(local.date() if moment.is_whole_day else local, zone)


def count_calendar(first: datetime, last: datetime) -> dict[str, int]:
    """Return the years, months and days between two local times, of which `first` is the earlier one."""
    months = max((last.year - first.year) * 12 + last.month - first.month, 0)
    if months and _add_months(first, months) > last:
        months -= 1
    days = (last - _add_months(first, months)).days
    return {"years": months // 12, "months": months % 12, "days": days}


def _add_months(day: datetime, months: int) -> datetime:
    years, month = divmod(day.month - 1 + months, 12)
    year = day.year + years
    return day.replace(year=year, month=month + 1, day=min(day.day, monthrange(year, month + 1)[1]))


def _find_zone(name: str) -> ZoneInfo:
    """Return the zone with that name, ignoring case. Raises `ToolError` with similar names if there is none."""
    normalized = _normalize(name)
    if known := _zone_names().get(normalized):
        return ZoneInfo(known)
    nearest = list(dict.fromkeys(_rank_similar_zones(normalized)))[:NEAREST_ZONES]
    hint = f"the nearest are {', '.join(nearest)}." if nearest else "give one such as Europe/Berlin or Asia/Tokyo."
    raise ToolError(f"There is no time zone '{name}': {hint}")


def _rank_similar_zones(normalized: str) -> Iterator[str]:
    """Yield similar zones: those that contain the name first, the shortest at the head, then those spelt similarly."""
    names = _zone_names()
    place = normalized.rpartition("/")[2]
    if len(place) > 1:
        yield from sorted((names[name] for name in names if place in name), key=len)
    cities = {name.rpartition("/")[2]: names[name] for name in names}
    yield from (names[name] for name in get_close_matches(normalized, names, NEAREST_ZONES))
    yield from (cities[name] for name in get_close_matches(place, cities, NEAREST_ZONES))


@cache
def _zone_names() -> dict[str, str]:
    return {_normalize(name): name for name in sorted(available_timezones())}


def _normalize(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
