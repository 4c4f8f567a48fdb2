"""Finds out what the texts of a call contain: JSON, sources, or a picture. Does no I/O."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from callboard.sources import read_sources

MAX_PARSED_CHARS = 1024 * 1024
"""The length limit of JSON that is indented, for both the text and the result. Longer JSON is shown unchanged."""
MAX_SOURCES = 200
"""The maximum number of sources that are listed. The JSON below the list has all sources."""

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
_WEB = ("http", "https")


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source of a result. `url` is None unless it is a web address, to which a page may link."""

    number: str
    title: str
    url: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A text as a page shows it, or the URL of a picture. `sources` has the first of its `source_count` sources."""

    text: str
    is_picture: bool = False
    sources: tuple[ShownSource, ...] = ()
    source_count: int = 0


def read_value(text: str) -> ShownValue:
    """Return the text, indented if it is JSON, with its sources."""
    if is_picture(text):
        return ShownValue(text, is_picture=True)
    if len(text) > MAX_PARSED_CHARS or not text.lstrip().startswith(("{", "[")):
        return ShownValue(text)
    try:
        pretty = indent(json.loads(text))
    except (ValueError, RecursionError):
        pretty = None
    if pretty is None:
        return ShownValue(text)
    sources = [item for item in read_sources(text) or () if isinstance(item, Mapping)]
    shown = tuple(map(_read_source, sources[:MAX_SOURCES]))
    return ShownValue(pretty, sources=shown, source_count=len(sources))


def indent(value: object) -> str | None:
    """Return a value as indented JSON; None if that is longer than `MAX_PARSED_CHARS`."""
    pieces: list[str] = []
    chars = 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2, default=str).iterencode(value):
        pieces.append(piece)
        chars += len(piece)
        if chars > MAX_PARSED_CHARS:
            return None
    return "".join(pieces)


def is_picture(url: object) -> bool:
    """Return whether the URL of a file contains a picture that a page may show."""
    return isinstance(url, str) and _PICTURE.fullmatch(url) is not None


def web_address(url: object) -> str | None:
    """Return the URL if it is a web address; otherwise None, because a page must not link to `javascript:` URLs."""
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
