"""The `time` skill: the time anywhere, dates, and what lies between them, read as people write them.

A local time may come twice or never. Zones go by their IANA names; their data is the system's, or the `tzdata`
package's. Arithmetic goes through UTC: Python subtracts two times of one zone by their clocks' faces, an hour wrong
over a change of the clocks.
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
    """A point in time; `whole_day` where only a date was given (then its first moment), `note` where it was unclear."""

    at: datetime
    whole_day: bool = False
    note: str = ""

    @property
    def on_the_clock(self) -> datetime:
        """The time that a clock there shows, without its zone; midnight of a whole day, even where that was skipped."""
        local = self.at.replace(tzinfo=None)
        return datetime.combine(local, time()) if self.whole_day else local


@tool(name="time", read_only=True)
def clock(
    zone: str = "UTC",
    start: str = "now",
    end: str | None = None,
    days: Annotated[int, Field(ge=-MAX_DAYS, le=MAX_DAYS)] = 0,
    to_zone: str | None = None,
) -> dict[str, Any]:
    """Tells the time in any zone, and reckons with dates.

    Without arguments: now, in UTC. With `start`: that moment with its weekday, week and offset. With `days`: the
    day so many days later, or before. With `to_zone`: the same moment there. With `end`: how much lies between.

    Args:
        zone: IANA name of the zone that `start` and `end` are meant in, such as Europe/Berlin.
        start: A date or time: 2026-03-29, 2026-03-29T14:30, 14:30, today, now.
        end: A second one, for the difference.
        days: Days to add to `start`; below 0 to go back.
        to_zone: IANA name of a zone to tell the moment in as well.
    """
    here = _find_zone(zone)
    there = _find_zone(to_zone) if to_zone else None
    now = datetime.now(UTC)
    try:
        first = _parse_moment(start, here, now)
        if days:
            first = _add_days(first, days)
        told = _describe(first, here)
        if there:
            told["there"] = _describe(Moment(first.at.astimezone(there)), there)
        if end is not None:
            last = _parse_moment(end, here, now)
            told |= {"end": _describe(last, here), "difference": _describe_difference(first, last)}
    except OverflowError:
        raise InvalidArguments("That is beyond the years 1 to 9999: give other dates.") from None
    return told


def _describe(moment: Moment, zone: ZoneInfo) -> dict[str, Any]:
    at = moment.at
    year, week, _ = at.isocalendar()
    told: dict[str, Any] = {
        "zone": zone.key,
        "date": at.date().isoformat(),
        "weekday": f"{at:%A}",
        "iso_week": f"{year:04}-W{week:02}",
        "day_of_year": at.timetuple().tm_yday,
    }
    if not moment.whole_day:
        told |= {"time": at.isoformat(timespec="seconds"), "utc": at.astimezone(UTC).isoformat(timespec="seconds")}
    if moment.note:
        told["note"] = moment.note
    return told


def _describe_difference(first: Moment, last: Moment) -> dict[str, Any]:
    """Return the time between, by the calendar and, where a time of day was given, by the clock."""
    backwards = first.at.astimezone(UTC) > last.at.astimezone(UTC)
    start, end = (last, first) if backwards else (first, last)
    # Where the clocks go back in between, they may show an earlier time at the end.
    between = count_calendar(start.on_the_clock, max(start.on_the_clock, end.on_the_clock))
    days = (end.at.date() - start.at.date()).days
    told: dict[str, Any] = {
        "calendar": between,
        "dates_apart": days,
        "weeks": {"weeks": days // 7, "days": days % 7},
    }
    if not (start.whole_day and end.whole_day):
        passed = end.at.astimezone(UTC) - start.at.astimezone(UTC)
        told["elapsed"] = {"seconds": int(passed.total_seconds()), "text": str(passed - passed % timedelta(seconds=1))}
    if backwards:
        told["note"] = "The end lies before the start: this is counted from the end to the start."
    return told


class Clock(Skill):
    """Time in any zone, and reckoning with dates: the tool `time`."""

    def __init__(self) -> None:
        super().__init__("time", "Tells the time in any zone, and reckons with dates.", _PROMPT, (clock,))


def _parse_moment(text: str, zone: ZoneInfo, now: datetime) -> Moment:
    """Return what ISO 8601 text, a clock time of today, `now` or `today` means; raises `InvalidArguments`."""
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
            f"'{text}' is no date or time: write 2026-03-29, 2026-03-29T14:30, 2026-03-29T14:30+02:00, 14:30, today "
            "or now."
        ) from None


def _resolve_local(local: date, zone: ZoneInfo) -> Moment:
    """Return a date's first moment, or a local time; clocks may show it twice or never. Raises `OverflowError`."""
    whole_day = not isinstance(local, datetime)
    clock = local if isinstance(local, datetime) else datetime.combine(local, time())
    first, second = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return Moment(first, whole_day)
    # Read with the offset before the change, a time in the gap lies as far after it.
    real = first.astimezone(UTC).astimezone(zone)
    if real.replace(tzinfo=None) == clock:
        again = second.astimezone(UTC).isoformat()
        note = (
            f"{clock.isoformat()} comes twice there, as the clocks go back: the first is taken, the second is {again}."
        )
        return Moment(first, whole_day, "" if whole_day else note)
    if whole_day and real.date() == local:
        return Moment(real, whole_day)
    taken = real.replace(tzinfo=None).isoformat()
    return Moment(
        real, whole_day, f"{local.isoformat()} does not exist there, as the clocks go forward: {taken} is taken."
    )


def _add_days(moment: Moment, days: int) -> Moment:
    """Return the same local time so many days later; raises `OverflowError` beyond the years 1 to 9999."""
    zone = moment.at.tzinfo
    assert isinstance(zone, ZoneInfo)
    local = moment.on_the_clock + timedelta(days=days)
    return _resolve_local(local.date() if moment.whole_day else local, zone)


def count_calendar(first: datetime, last: datetime) -> dict[str, int]:
    """Return whole years, then months, then days, between two times on the clock, of which `first` is the earlier."""
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
    """Return the zone of that name, whatever its case; raises `ToolError`, with the nearest names, for none."""
    wanted = _normalize(name)
    if known := _zone_names().get(wanted):
        return ZoneInfo(known)
    near = list(dict.fromkeys(_rank_near(wanted)))[:NEAREST_ZONES]
    hint = f"the nearest are {', '.join(near)}." if near else "give one such as Europe/Berlin or Asia/Tokyo."
    raise ToolError(f"There is no time zone '{name}': {hint}")


def _rank_near(wanted: str) -> Iterator[str]:
    """Yield the zones of that city first, then those with it in their names, then those spelt alike."""
    names = _zone_names()
    place = wanted.rpartition("/")[2]
    if len(place) > 1:
        yield from sorted((names[one] for one in names if one.rpartition("/")[2] == place), key=len)
        yield from sorted((names[one] for one in names if place in one), key=len)
    cities = {one.rpartition("/")[2]: names[one] for one in names}
    yield from (names[one] for one in get_close_matches(wanted, names, NEAREST_ZONES))
    yield from (cities[one] for one in get_close_matches(place, cities, NEAREST_ZONES))


@cache
def _zone_names() -> dict[str, str]:
    return {_normalize(name): name for name in sorted(available_timezones())}


def _normalize(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
