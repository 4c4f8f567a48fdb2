"""A text that a call brought, as what it is: JSON, sources, a picture, plain text. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from callboard._history.sources import read_sources

MAX_PARSED_CHARS = 1024 * 1024
"""The most characters of JSON that is indented, before that and after: what is longer is shown as it was written."""
MAX_SOURCES = 200
"""The sources of a result that are listed; the others stand in its JSON."""

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
_WEB = ("http", "https")


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source of a result; `url` is there where it is one of the web, which a link may lead to."""

    number: str
    title: str
    url: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A text, and how it is shown; `text` is what is, of a picture its address. `sources` are the first of so many."""

    kind: Literal["json", "text", "picture", "sources"]
    text: str
    sources: tuple[ShownSource, ...] = ()
    source_count: int = 0


def read_value(text: str) -> ShownValue:
    """Return the text as what it is."""
    if _PICTURE.fullmatch(text):
        return ShownValue("picture", text)
    if len(text) > MAX_PARSED_CHARS or not text.lstrip().startswith(("{", "[")):
        return ShownValue("text", text)
    try:
        pretty = indent(json.loads(text))
    except (ValueError, RecursionError):
        return ShownValue("text", text)
    if pretty is None:
        return ShownValue("text", text)
    if items := read_sources(text):
        sources = [item for item in items if isinstance(item, Mapping)]
        return ShownValue("sources", pretty, tuple(map(_read_source, sources[:MAX_SOURCES])), len(sources))
    return ShownValue("json", pretty)


def indent(value: object) -> str | None:
    """Return a value as JSON with a line for each part, None where that is longer than `MAX_PARSED_CHARS`."""
    pieces: list[str] = []
    chars = 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2, default=str).iterencode(value):
        pieces.append(piece)
        chars += len(piece)
        if chars > MAX_PARSED_CHARS:
            return None
    return "".join(pieces)


def is_picture(url: object) -> bool:
    """Return whether a file's address is a picture that a page may show."""
    return isinstance(url, str) and _PICTURE.fullmatch(url) is not None


def web_address(url: object) -> str | None:
    """Return the address where it is one of the web: what else a link may be (`javascript:`) is a text and no more."""
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in _WEB and parts.netloc and url.isprintable() else None


def _read_source(item: Mapping[str, Any]) -> ShownSource:
    address = next((item[name] for name in ("url", "link", "source") if name in item), None)
    title = item.get("title") or item.get("name") or address or ""
    text = next((item[name] for name in ("snippet", "content", "text") if name in item), "")
    return ShownSource(str(item.get("source_number", "")), str(title), web_address(address), str(text))
