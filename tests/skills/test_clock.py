"""The tool `time`: zones, dates, and differences between them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.skills.clock import Clock, clock
from callboard.storage import Store
from tests.skills.calling import Caller


def test_now_is_current_time_in_zone() -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    told = clock(zone="Asia/Tokyo")
    assert before <= datetime.fromisoformat(told["time"]) <= datetime.now(UTC)
    assert told["time"].endswith("+09:00")
    assert told["weekday"] == f"{datetime.fromisoformat(told['time']):%A}"


def test_moment_has_day_and_time_in_another_zone() -> None:
    told = clock(zone="Europe/Berlin", start="2026-01-01T00:30", to_zone="America/New_York")
    there = told.pop("there")
    assert told == {
        "zone": "Europe/Berlin",
        "date": "2026-01-01",
        "weekday": "Thursday",
        "iso_week": "2026-W01",
        "day_of_year": 1,
        "time": "2026-01-01T00:30:00+01:00",
        "utc": "2025-12-31T23:30:00+00:00",
    }
    assert (there["weekday"], there["time"]) == ("Wednesday", "2025-12-31T18:30:00-05:00")


@pytest.mark.parametrize(
    ("written", "time", "note"),
    [
        ("2026-07-01T12:00:00Z", "2026-07-01T14:00:00+02:00", ""),
        ("2026-03-29T02:30", "2026-03-29T03:30:00+02:00", "does not exist"),
        ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00", r"comes twice.*2026-10-25T01:30:00\+00:00"),
    ],
)
def test_time_is_converted_to_zone_with_a_note_if_the_clocks_change(written: str, time: str, note: str) -> None:
    told = clock(zone="europe/BERLIN", start=written)
    assert (told["zone"], told["time"]) == ("Europe/Berlin", time)
    assert re.search(note, told.get("note", ""), re.DOTALL)
    assert bool(note) == ("note" in told)


def test_time_without_date_is_today() -> None:
    days = {clock(zone="Asia/Tokyo", start="today")["date"]}
    told = clock(zone="Asia/Tokyo", start="9:05")
    days.add(clock(zone="Asia/Tokyo", start="today")["date"])
    assert told["date"] in days
    assert told["time"] == f"{told['date']}T09:05:00+09:00"


def test_day_without_midnight_or_skipped_day_is_valid() -> None:
    # Brazil's clocks went forward at midnight; Samoa left out a day to cross the date line.
    late = clock(zone="America/Sao_Paulo", start="2018-11-04", end="2018-11-05")
    assert (late["date"], late["difference"]["calendar"]["days"]) == ("2018-11-04", 1)
    assert "note" not in late
    left_out = clock(zone="Pacific/Apia", start="2011-12-30")
    assert left_out["date"] == "2011-12-31"
    assert "2011-12-30 does not exist" in left_out["note"]


@pytest.mark.parametrize(
    ("start", "end", "parts", "days"),
    [
        ("2026-01-31", "2026-02-28", (0, 1, 0), 28),
        ("2024-02-29", "2025-03-01", (1, 0, 1), 366),
        ("2026-03-01", "2026-02-01", (0, 1, 0), 28),
    ],
)
def test_difference_of_dates_uses_calendar(start: str, end: str, parts: tuple[int, int, int], days: int) -> None:
    told = clock(start=start, end=end)["difference"]
    assert (tuple(told["calendar"].values()), told["dates_apart"]) == (parts, days)
    assert "elapsed" not in told
    assert ("before the start" in told.get("note", "")) == (end < start)


def test_elapsed_time_includes_clock_change() -> None:
    told = clock(zone="Europe/Berlin", start="2026-03-28T12:00", end="2026-03-29T12:00")["difference"]
    assert (told["elapsed"]["seconds"], told["calendar"]["days"]) == (23 * 3600, 1)
    back = clock(zone="Europe/Berlin", start="2026-10-25T02:45+02:00", end="2026-10-25T02:15+01:00")["difference"]
    assert back["elapsed"] == {"seconds": 1800, "text": "0:30:00"}


def test_days_are_added_on_the_calendar() -> None:
    assert clock(start="2026-02-27", days=2)["date"] == "2026-03-01"
    assert clock(start="2026-01-01", days=-1)["date"] == "2025-12-31"
    over_the_change = clock(zone="Europe/Berlin", start="2026-03-28T12:00", days=1)
    assert over_the_change["time"] == "2026-03-29T12:00:00+02:00"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Tokyo", "Asia/Tokyo"),
        ("Asia/Sidney", "Australia/Sydney"),
        ("../../etc/passwd", ""),
        ("", ""),
    ],
)
def test_an_unknown_zone_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ToolError, match=f"There is no time zone.*{nearest}"):
        clock(zone=name)
    with pytest.raises(ToolError, match="There is no time zone"):
        clock(to_zone="Nowhere/Land")


@pytest.mark.parametrize("written", ["yesterday-ish", "2026-02-30", ""])
def test_invalid_date_is_answered_with_format(written: str) -> None:
    with pytest.raises(InvalidArguments, match="write 2026-03-29"):
        clock(start=written)


@pytest.mark.parametrize(
    "arguments",
    [
        {"start": "9999-12-31", "days": 1},
        {"start": "0001-01-01T00:00", "zone": "Asia/Tokyo"},
        {"start": "9999-12-31T23:00", "to_zone": "Asia/Tokyo"},
    ],
)
def test_date_out_of_range_is_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match=r"beyond the years|no date or time"):
        clock(**arguments)


async def test_result_is_json_without_user_or_chat(store: Store) -> None:
    told = await Caller(store, user_id=None, chat_id=None).call(Clock(), zone="UTC", start="2026-03-29")
    assert told["weekday"] == "Sunday"
