"""When a request to an endpoint is sent again, and after how long."""

from email.utils import formatdate
from time import time

import httpx
import pytest

from callboard.models.retries import MAX_RETRY_AFTER_SECONDS, find_retry_delay

LEFT_SECONDS = 300.0


def delay(status: int, retries: int = 0, left_seconds: float = LEFT_SECONDS, **headers: str) -> float | None:
    """The wait after an answer; `_` in a header's name is `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return find_retry_delay(retries, 2, httpx.Response(status, headers=named), left_seconds)


@pytest.mark.parametrize(("status", "is_temporary"), [(408, True), (409, True), (429, True), (500, True), (404, False)])
def test_a_temporary_status_is_retried_unless_the_header_decides(status: int, is_temporary: bool) -> None:
    assert (delay(status) is not None) is is_temporary
    assert delay(status, x_should_retry="true") is not None
    assert delay(status, x_should_retry="false") is None


def test_delay_doubles_up_to_eight_seconds_with_jitter() -> None:
    for retries, longest in [(0, 0.5), (1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (99, 8)]:
        delays = {find_retry_delay(retries, 100, None, LEFT_SECONDS) or 0 for _ in range(100)}
        assert longest * 0.75 <= min(delays) < max(delays) <= longest


def test_retries_come_to_an_end() -> None:
    assert delay(503, retries=1) is not None
    assert delay(503, retries=2) is None
    assert find_retry_delay(2, 2, None, LEFT_SECONDS) is None
    assert find_retry_delay(0, 0, None, LEFT_SECONDS) is None


def test_retry_after_is_read_as_milliseconds_seconds_or_date() -> None:
    assert delay(429, retry_after="7") == 7
    assert delay(429, retry_after="0.5") == 0.5
    assert delay(429, retry_after_ms="250") == 0.25
    assert delay(429, retry_after_ms="250", retry_after="7") == 0.25
    assert delay(429, retry_after_ms="soon", retry_after="7") == 7
    at = delay(429, retry_after=formatdate(time() + 60, usegmt=True))
    assert at is not None
    assert 50 < at <= 60


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_delay_that_cannot_be_used_is_replaced_by_the_usual_one(value: str) -> None:
    waited = delay(429, retry_after=value)
    assert waited is not None
    assert 0.375 <= waited <= 0.5


@pytest.mark.parametrize("value", ["121", "inf", "9" * 5000, "Fri, 01 Jan 9999 00:00:00 GMT"])
def test_too_long_retry_after_is_not_retried(value: str) -> None:
    assert delay(429, left_seconds=1e9, retry_after=value) is None
    assert delay(429, left_seconds=1e9, retry_after=value, x_should_retry="true") is None


def test_delay_beyond_timeout_is_not_started() -> None:
    assert delay(429, left_seconds=60, retry_after="59") == 59
    assert delay(429, left_seconds=59, retry_after="59") is None
    assert delay(503, left_seconds=0.3) is None
    assert find_retry_delay(0, 2, None, 0.3) is None
    assert delay(429, left_seconds=1e9, retry_after=f"{MAX_RETRY_AFTER_SECONDS:g}") == MAX_RETRY_AFTER_SECONDS
