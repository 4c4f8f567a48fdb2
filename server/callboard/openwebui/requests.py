"""Reads requests from Open WebUI: headers that name the user and the chat, parameters, prompts of background tasks.

On OpenAI's routes Open WebUI sends headers of the user and the chat if ENABLE_FORWARD_USER_INFO_HEADERS is on. It also
sends headers that an admin adds to the connection, for example `X-OpenWebUI-Task: {{TASK}}`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from callboard.errors import RequestError

CHAT_HEADERS = {
    "chat_id": "x-openwebui-chat-id",
    "message_id": "x-openwebui-message-id",
    "task": "x-openwebui-task",
}
"""The header of each field of a request's chat."""

USER_HEADERS = {
    "id": "x-openwebui-user-id",
    "name": "x-openwebui-user-name",
    "email": "x-openwebui-user-email",
    "role": "x-openwebui-user-role",
}
"""The header of each field of a user. The name is percent-encoded, because headers allow few characters."""

UNSAVED_CHATS = ("local:", "temporary:", "channel:")
"""The prefixes of ids of conversations that Open WebUI does not save as chats."""

MARKER = "### Task:"
"""The beginning of every prompt of a background task, by `open_webui/config.py`."""

TITLE_WORDS = 5

# `add_file_context` and the handlers of skills and searches in `open_webui/utils/middleware.py`.
_CONTEXT = re.compile(
    r"(?:\s*<(attached_files|attached_knowledge|available_skills|context|skill|source)\b[^>]*>.*?</\1>)*+", re.DOTALL
)
_LAST_USER_LINE = re.compile(r"^USER: (.+)$", re.MULTILINE)


def has_own_header(names: Iterable[str]) -> bool:
    """Return whether one of these headers, given in lower case, is specific to Open WebUI."""
    return any(name.startswith("x-openwebui-") for name in names)


def read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a chat's settings in the form that endpoints accept.

    Open WebUI sends `logit_bias` as the user typed it: `5432:100, 413:-100`. Raises `RequestError` for any other text.
    """
    bias = given.get("logit_bias")
    if not isinstance(bias, str):
        return dict(given)
    pairs = (pair.rpartition(":") for pair in bias.split(",") if pair.strip())
    try:
        return {**given, "logit_bias": {token.strip(): int(value) for token, _, value in pairs}}
    except ValueError:
        raise RequestError(f"logit_bias is {bias!r}: write it as 5432:100, 413:-100") from None


def read_headers(names: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values of headers, for example of `CHAT_HEADERS`, by the fields that `names` gives them.

    Empty values are left out, and so are placeholders that Open WebUI did not know: a misspelled `{{USER_ID}}` would be
    one user for all.
    """
    values = ((field, headers.get(header, "").strip()) for field, header in names.items())
    return {field: value for field, value in values if value and not value.startswith("{{")}


def strip_context(message: str) -> str:
    """Return the part of a message that the user typed, without the files, skills and search results before it.

    A message without a typed part is returned unchanged.
    """
    typed = message
    if typed.lstrip().startswith(MARKER):
        # DEFAULT_RAG_TEMPLATE of `open_webui/config.py` ends with the context; the user's message follows.
        typed = typed.rpartition("</context>")[2]
    return _CONTEXT.sub("", typed, count=1).strip() or message


def answer_background_prompt(prompt: str) -> str | None:
    """Return an answer to the prompt of a background task, without a model; None for any other prompt.

    The answer is a JSON object with `title`, `tags` and `follow_ups`: each task reads the key that it needs.
    """
    if not prompt.lstrip().startswith(MARKER):
        return None
    asked = _LAST_USER_LINE.search(prompt)
    words = asked[1].split() if asked else []
    title = " ".join(words[:TITLE_WORDS]) or "New chat"
    return json.dumps({"title": title, "tags": ["callboard"], "follow_ups": []}, ensure_ascii=False)
