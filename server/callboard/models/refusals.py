"""Maps an endpoint's refusal of a request to an error code that OpenAI's clients know. Pure functions."""

import re
from collections.abc import Mapping
from typing import Any

REFUSAL_STATUSES = frozenset({400, 413, 415, 422})
"""Statuses that concern the request itself: the same request would be refused again."""

CONTEXT_TOO_LONG = "context_length_exceeded"
"""OpenAI's code for a context that is too long. Clients that see it shorten their request."""

FILTERED = "content_filter"
"""The code of OpenAI and Azure for content that their filter blocks."""

_TOO_LONG = re.compile(
    r"(?:maximum|available|exceed\w*|longer than|beyond)\b[^.]{0,60}\bcontext (?:length|size|window)"
    r"|context (?:length|size|window)[^.]{0,40}\b(?:exceed|too (?:long|large|small))"
    r"|(?:prompt|input|request) is too long|exceed_context_size",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def upstream_code(body: object, message: str) -> str:
    """Return the endpoint's error code, empty if it gave none as text.

    `body` is the error object. Many endpoints report a context that is too long only in their message.
    """
    fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    if isinstance(nested := fields.get("error"), Mapping):
        fields = nested
    code = fields.get("code")
    kind = fields.get("type")
    if CONTEXT_TOO_LONG in (code, kind) or _TOO_LONG.search(f"{kind} {message}"):
        return CONTEXT_TOO_LONG
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""
