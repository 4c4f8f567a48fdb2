"""`data:` URLs (RFC 2397), in which messages and events contain files."""

import base64
import binascii
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_HEAD = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]*)*)(;base64)?,", re.ASCII)

MAX_HEAD_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Data:
    """The content type and the content of a `data:` URL."""

    content_type: str
    content: bytes


def content_type_of(url: str) -> str | None:
    """Return the content type of a `data:` URL, by default `text/plain`; None for any other URL."""
    head = _HEAD.match(url, 0, MAX_HEAD_CHARS)
    return (head[1] or "text/plain") if head else None


def count_bytes(url: str) -> int | None:
    """Return the size of the content of a `data:` URL, without decoding base64; None for any other URL."""
    head = _HEAD.match(url, 0, MAX_HEAD_CHARS)
    if not head:
        return None
    if not head[3]:
        return len(unquote_to_bytes(url[head.end() :]))
    chars = len(url) - head.end()
    return chars * 3 // 4 - url[-2:].count("=") if chars else 0


def read_data_url(url: str) -> Data:
    """Return the content and its type; raises `ValueError` for another URL and for invalid base64."""
    head = _HEAD.match(url, 0, MAX_HEAD_CHARS)
    if not head:
        raise ValueError("this is not a data: URL")
    try:
        content = base64.b64decode(url[head.end() :]) if head[3] else unquote_to_bytes(url[head.end() :])
    except binascii.Error as error:
        raise ValueError(f"its base64 is invalid: {error}") from error
    return Data(head[1] or "text/plain", content)
