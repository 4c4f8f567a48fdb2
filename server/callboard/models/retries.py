"""Decides whether and when a failed request to an endpoint is retried, with the rules of OpenAI's own clients.

The functions are pure. An answer that has started is never requested again here.
"""

import math
import random
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz

import httpx

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 8.0
JITTER = 0.25
"""The largest random reduction of a delay, as a fraction."""
MAX_RETRY_AFTER_SECONDS = 120.0
"""The longest delay that an endpoint may request. If it requests more, the request fails at once."""

_TEMPORARY_STATUSES = frozenset({408, 409, 429})


def find_retry_delay(
    retries: int, max_retries: int, response: httpx.Response | None, left_seconds: float
) -> float | None:
    """Return the seconds before the next try after `retries` retries, or None if there is no next try.

    `response` is None if the connection failed. A delay longer than `left_seconds` is not started, because the known
    error explains more than a timeout.
    """
    if retries >= max_retries:
        return None
    requested = None
    if response is not None:
        requested = _read_retry_after(response.headers)
        if not _is_temporary(response) or (requested is not None and requested > MAX_RETRY_AFTER_SECONDS):
            return None
    # A requested delay of zero is replaced by the usual delay.
    delay = requested if requested is not None and requested > 0 else _backoff(retries)
    return delay if delay < left_seconds else None


def _is_temporary(response: httpx.Response) -> bool:
    # A header of OpenAI's API, which Callboard's own routes send as well.
    match response.headers.get("x-should-retry"):
        case "true":
            return True
        case "false":
            return False
    return response.status_code in _TEMPORARY_STATUSES or response.is_server_error


def _backoff(retries: int) -> float:
    # The exponent is limited so that the number stays small.
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(retries, 10), MAX_DELAY_SECONDS)
    return delay * random.uniform(1 - JITTER, 1)  # noqa: S311 - not used for security


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that an endpoint requests, or None if there is none or it is unreadable."""
    for name, seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            delay = float(headers[name]) * seconds
        except (KeyError, ValueError):
            continue
        return None if math.isnan(delay) else delay
    try:
        date = parsedate_tz(headers.get("retry-after", ""))
        return mktime_tz(date) - time.time() if date else None
    except (ValueError, OverflowError):
        return None
