"""Reasons for which an endpoint refused a request, as one word that OpenAI's clients know. Pure."""

import re
from collections.abc import Mapping
from typing import Any

REFUSED = frozenset({400, 413, 415, 422})
"""Statuses that speak of the request itself: the same again is refused again."""

CONTEXT_TOO_LONG = "context_length_exceeded"
"""OpenAI's code for more than the model can read: clients shorten what they send where they meet it."""

FILTERED = "content_filter"
"""The code of OpenAI and Azure for what their content filter does not let through."""

_TOO_LONG = re.compile(
    r"(?:maximum|available|exceed\w*|longer than|beyond)\b[^.]{0,60}\bcontext (?:length|size|window)"
    r"|context (?:length|size|window)[^.]{0,40}\b(?:exceed|too (?:long|large|small))"
    r"|(?:prompt|input|request) is too long|exceed_context_size",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def upstream_code(body: object, message: str) -> str:
    """Return the endpoint's code for an error, empty where it gave none in words.

    `body` is the error object. Many endpoints say only in their message that the context is too long.
    """
    fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    if isinstance(nested := fields.get("error"), Mapping):
        fields = nested
    code = fields.get("code")
    kind = fields.get("type")
    if CONTEXT_TOO_LONG in (code, kind) or _TOO_LONG.search(f"{kind} {message}"):
        return CONTEXT_TOO_LONG
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""
