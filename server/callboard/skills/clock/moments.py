"""Moments as people write them: read in a zone, where a local time may come twice or never; and what lies between.

Arithmetic goes through UTC: Python subtracts two times of one zone by their clocks' faces,
an hour wrong over a change of the clocks.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from callboard.errors import InvalidArguments

_CLOCK_ONLY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time; `whole_day` where only a date was given (then its first moment), `note` where it was unclear."""

    at: datetime
    whole_day: bool = False
    note: str = ""

    @property
    def on_the_clock(self) -> datetime:
        """What a clock there shows, without its zone; midnight of a whole day, even where that was skipped."""
        local = self.at.replace(tzinfo=None)
        return datetime.combine(local, time()) if self.whole_day else local


@dataclass(frozen=True, slots=True)
class Calendar:
    """What lies between two local times as a calendar counts it, none of the parts below 0."""

    years: int
    months: int
    days: int


def read_moment(text: str, zone: ZoneInfo, now: datetime) -> Moment:
    """The moment that ISO 8601 text, a clock time of today, `now` or `today` means; raises `InvalidArguments`."""
    written = text.strip()
    match written.lower():
        case "now":
            return Moment(now.astimezone(zone))
        case "today":
            return local_moment(now.astimezone(zone).date(), zone)
    try:
        if _CLOCK_ONLY.fullmatch(written):
            today = now.astimezone(zone).date()
            padded = written if written[2] == ":" else f"0{written}"
            return local_moment(datetime.combine(today, time.fromisoformat(padded)), zone)
        if _is_date(written):
            return local_moment(date.fromisoformat(written), zone)
        read = datetime.fromisoformat(written)
        return local_moment(read, zone) if read.tzinfo is None else Moment(read.astimezone(zone))
    except (ValueError, OverflowError):
        raise InvalidArguments(
            f"'{text}' is no date or time: write 2026-03-29, 2026-03-29T14:30, 2026-03-29T14:30+02:00, 14:30, today "
            "or now."
        ) from None


def local_moment(local: date, zone: ZoneInfo) -> Moment:
    """A date's first moment, or a local time; the zone's clocks may show it twice or never. Raises `OverflowError`."""
    whole_day = not isinstance(local, datetime)
    clock = local if isinstance(local, datetime) else datetime.combine(local, time())
    first, second = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    if first.utcoffset() == second.utcoffset():
        return Moment(first, whole_day)
    if _exists(first):
        again = second.astimezone(UTC).isoformat()
        note = (
            f"{clock.isoformat()} comes twice there, as the clocks go back: the first is taken, the second is {again}."
        )
        return Moment(first, whole_day, "" if whole_day else note)
    # Read with the offset before the change, a time in the gap lies as far after it.
    real = first.astimezone(UTC).astimezone(zone)
    if whole_day and real.date() == local:
        return Moment(real, whole_day)
    taken = real.replace(tzinfo=None).isoformat()
    return Moment(
        real, whole_day, f"{local.isoformat()} does not exist there, as the clocks go forward: {taken} is taken."
    )


def add_days(moment: Moment, days: int) -> Moment:
    """The same local time so many days later; raises `OverflowError` beyond the years 1 to 9999."""
    zone = moment.at.tzinfo
    assert isinstance(zone, ZoneInfo)
    local = moment.on_the_clock + timedelta(days=days)
    return local_moment(local.date() if moment.whole_day else local, zone)


def elapsed(start: datetime, end: datetime) -> timedelta:
    """The time that passes between them."""
    return end.astimezone(UTC) - start.astimezone(UTC)


def calendar(first: datetime, last: datetime) -> Calendar:
    """Whole years, then months, then days, between two times on the clock of which `first` is the earlier."""
    months = max((last.year - first.year) * 12 + last.month - first.month, 0)
    if months and _after_months(first, months) > last:
        months -= 1
    return Calendar(months // 12, months % 12, (last - _after_months(first, months)).days)


def _after_months(day: datetime, months: int) -> datetime:
    years, month = divmod(day.month - 1 + months, 12)
    year = day.year + years
    return day.replace(year=year, month=month + 1, day=min(day.day, monthrange(year, month + 1)[1]))


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _exists(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None)
