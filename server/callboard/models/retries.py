"""Rules for sending a request to an endpoint again: the rules of OpenAI's own clients. Pure.

An answer that has begun is never asked for again here.
"""

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz

import httpx

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 8.0
JITTER = 0.25
"""The most that chance takes off a delay, as a part of it."""
MAX_RETRY_AFTER_SECONDS = 120.0
"""The longest delay that an endpoint may ask for; if it asks for more, the request fails at once."""

_TEMPORARY_STATUSES = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is sent again, and after how long."""

    max_retries: int = 2

    def delay_seconds(self, retries: int, response: httpx.Response | None, left_seconds: float) -> float | None:
        """Return the wait before the next try, after `retries` retries; None if there is no next try.

        `response` is None if the connection failed. A wait that does not end within `left_seconds` is not begun: the
        error that is known by then says more than a time-out.
        """
        asked = None
        if retries >= self.max_retries:
            return None
        if response is not None:
            asked = _read_retry_after(response.headers)
            if not _is_temporary(response) or (asked is not None and asked > MAX_RETRY_AFTER_SECONDS):
                return None
        # An endpoint that asks for no delay at all gets the usual one.
        delay = asked if asked is not None and asked > 0 else _backoff(retries)
        return delay if delay < left_seconds else None


def _is_temporary(response: httpx.Response) -> bool:
    # OpenAI's own header; Callboard sends it as well.
    match response.headers.get("x-should-retry"):
        case "true":
            return True
        case "false":
            return False
    return response.status_code in _TEMPORARY_STATUSES or response.is_server_error


def _backoff(retries: int) -> float:
    # The bound on the power keeps it a number of a sensible size.
    delay = min(FIRST_DELAY_SECONDS * 2.0 ** min(retries, 10), MAX_DELAY_SECONDS)
    return delay * random.uniform(1 - JITTER, 1)  # noqa: S311 - it keeps no secret


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds that an endpoint asks for; None if it asks for none, or cannot be understood."""
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
