"""Renders templates. Every value is escaped, and invisible characters are made visible."""

import json
import re
import time
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from itertools import islice

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from callboard._inspect.values import indent, is_picture, read_arguments
from callboard._inspect.visit import Visit
from callboard._version import __version__
from callboard_protocol.endings import ENDINGS, FAILED, format_ending

MAX_SHOWN_CHARS = 100_000
"""The maximum number of characters of a text that a page shows. The whole text has its own URL."""

MAX_LISTED_CHARS = 20_000
"""The maximum number of characters of arguments that lists show as names and values; a page lists hundreds of calls."""

STATE_LABELS = {
    "running": "running",
    "waiting": "waiting for approval",
    "complete": "done",
    "ended": "ended",
    **{ending.state: ending.label for ending in (*ENDINGS.values(), FAILED)},
}
"""The labels of the states of calls and runs."""

MAX_INVISIBLE = 5_000
"""The maximum number of invisible characters that a page shows of a text. Each takes about fifty characters of HTML."""

# Control characters, and characters that change the direction of text or have no width. They can make a text look like
# another text.
_INVISIBLE = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def visible(text: object) -> Markup:
    """Return a text as escaped HTML, with each invisible character replaced by its marked code point."""
    # After escaping, because escapes contain no invisible characters.
    return Markup(_INVISIBLE.sub(lambda found: _mark_invisible(found[0]), str(escape(str(text)))))  # noqa: S704 - escaped, and marks


@lru_cache(maxsize=1024)
def _mark_invisible(char: str) -> str:
    nameless = "control character" if unicodedata.category(char) == "Cc" else "unassigned character"
    name = unicodedata.name(char, nameless).lower()
    return f'<span class="unseen" title="{name}">U+{ord(char):04X}</span>'


def beginning(text: str) -> str:
    """Return the beginning of a text, up to the limits of a page."""
    part = text[:MAX_SHOWN_CHARS]
    beyond = next(islice(_INVISIBLE.finditer(part), MAX_INVISIBLE, None), None)
    return part[: beyond.start()] if beyond else part


def excerpt(text: object, chars: int = 120) -> Markup:
    """Return the beginning of a text on one line, as HTML with visible characters (see `visible`)."""
    given = str(text)
    line = " ".join(given[: chars * 4].split())
    return visible(line[:chars] + ("…" if len(line) > chars or len(given) > chars * 4 else ""))


def label(text: object, chars: int = 80) -> str:
    """Return the beginning of a text on one line, without HTML, for attributes and titles."""
    line = " ".join(str(text)[: chars * 4].split())
    return _INVISIBLE.sub(lambda found: f"U+{ord(found[0]):04X}", line[:chars])


def duration(seconds: float | None) -> str:
    """Format a duration: `340 ms`, `1.2 s`, `3 min 20 s`."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def milliseconds(value: float | None) -> str:
    """Format a duration in milliseconds like `duration`."""
    return duration(None if value is None else value / 1000)


def moment(at: float | None) -> Markup:
    """Format a time in UTC, because the server does not know the time zone of the browser."""
    if at is None:
        return Markup("–")
    when = datetime.fromtimestamp(at, UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(when.isoformat(), when.strftime("%Y-%m-%d %H:%M:%S"))


def ago(at: float | None) -> Markup:
    """Format the age of a time, for example `2 min ago`, with the time itself as a tooltip."""
    if at is None:
        return Markup("–")
    when = datetime.fromtimestamp(at, UTC)
    shown = Markup('<time datetime="{}" title="{} UTC">{}</time>')
    return shown.format(when.isoformat(), when.strftime("%Y-%m-%d %H:%M:%S"), _format_age(time.time() - at, when))


def _format_age(seconds: float, when: datetime) -> str:
    if seconds < 45:
        return "just now"
    if seconds < 45 * 60:
        return f"{max(1, round(seconds / 60))} min ago"
    if seconds < 36 * 3600:
        return f"{max(1, round(seconds / 3600))} h ago"
    if seconds < 14 * 86_400:
        return f"{round(seconds / 86_400)} days ago"
    return when.strftime("%Y-%m-%d")


def day(days_ago: int) -> str:
    """Format a day in UTC as fields for days take it."""
    return (datetime.now(UTC) - timedelta(days_ago)).strftime("%Y-%m-%d")


def number(value: float | None) -> str:
    """Format a number with thousands separators."""
    return "–" if value is None else f"{value:,}"


def money(cost: float) -> str:
    """Format a cost without a currency, because the endpoint reports none."""
    return f"{cost:.6f}".rstrip("0").rstrip(".") if cost >= 0.000001 or not cost else "less than 0.000001"


def pretty(value: object) -> str:
    """Format a value as indented JSON, or on one line if indented JSON would be too long."""
    return indent(value) or json.dumps(value, ensure_ascii=False, default=str)


ENVIRONMENT = Environment(
    loader=PackageLoader("callboard._inspect"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
ENVIRONMENT.filters.update(
    ago=ago,
    visible=visible,
    beginning=beginning,
    excerpt=excerpt,
    label=label,
    duration=duration,
    milliseconds=milliseconds,
    money=money,
    moment=moment,
    number=number,
    pretty=pretty,
    arguments=partial(read_arguments, max_chars=MAX_LISTED_CHARS),
)
ENVIRONMENT.globals.update(
    day=day, is_picture=is_picture, version=__version__, state_labels=STATE_LABELS, format_ending=format_ending
)


def render(template: str, visit: Visit, status: int = HTTPStatus.OK, **values: object) -> HTMLResponse:
    """Return a page, or the live part of one, from a template. `values` are the template's."""
    return HTMLResponse(ENVIRONMENT.get_template(template).render(visit=visit, **values), status)
