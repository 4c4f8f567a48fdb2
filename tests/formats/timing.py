"""Measures the time for reading a text, and whether it is proportional to the length."""

import time
from collections.abc import Callable

from callboard._formats import parse
from tests.formats.corpus import TOOLS

SMALL = 5_000
LARGE = 40_000
# Linear time is 8 times as long, quadratic time 64 times.
GROWTH = 24
SLACK_SECONDS = 0.1
ATTEMPTS = 3


def seconds(text: str, format_name: str = "rescue") -> float:
    began = time.process_time()
    parse(text, [tool.schema() for tool in TOOLS], format_name)
    return time.process_time() - began


def seconds_of_row(unit: str, format_name: str, size: int) -> float:
    return seconds(unit * (size // len(unit)), format_name)


def is_linear(measure: Callable[[int], float]) -> bool:
    """Return whether eight times the text takes at most `GROWTH` times as long; repeated on a busy machine."""
    return any(measure(LARGE) < measure(SMALL) * GROWTH + SLACK_SECONDS for _ in range(ATTEMPTS))
