"""Makes the texts of a call readable, and detects pictures. Does no I/O."""

import json
import re
from urllib.parse import urlsplit

from callboard.calls.approval import list_arguments
from callboard.calls.call import parse_arguments

MAX_PARSED_CHARS = 1024 * 1024
"""The length limit of JSON that is indented, for both the text and the result. Longer JSON is shown unchanged."""

_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
_WEB = ("http", "https")


def read_value(text: str) -> str:
    """Return the text, indented if it is JSON."""
    if len(text) > MAX_PARSED_CHARS or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return indent(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def read_arguments(text: str, max_chars: int = MAX_PARSED_CHARS) -> str:
    """Return arguments as lines with names and values; a longer text, or one that is no JSON object, unchanged."""
    read = parse_arguments(text) if len(text) <= max_chars else text
    try:
        return list_arguments(read) if isinstance(read, dict) and indent(read) else text
    except (ValueError, RecursionError):
        return text


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
