"""Requests of Open WebUI: the headers that say who asks in which chat, parameters, prompts of its background tasks.

On OpenAI's routes it sends headers of the user and the chat where ENABLE_FORWARD_USER_INFO_HEADERS is on, and any
header that an admin writes into the connection, as `X-OpenWebUI-Task: {{TASK}}`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from callboard.errors import RequestError

CHAT_ID = "x-openwebui-chat-id"
MESSAGE_ID = "x-openwebui-message-id"
TASK = "x-openwebui-task"
USER = {
    "id": "x-openwebui-user-id",
    "name": "x-openwebui-user-name",
    "email": "x-openwebui-user-email",
    "role": "x-openwebui-user-role",
}
"""The header of each field of a user. The name is percent-encoded, as a header cannot hold every name."""

UNSAVED_CHATS = ("local:", "temporary:", "channel:")
"""The beginnings of the ids of what is not saved as a chat."""

MARKER = "### Task:"
"""The beginning of each prompt in the background, by `open_webui/config.py`."""

_KNOWLEDGE = re.compile(
    rf"\s*{MARKER}\s+Respond to the user query using the provided context.*</context>\s*", re.DOTALL
)
"""What stands before a question with knowledge or files that are given whole (`DEFAULT_RAG_TEMPLATE` there)."""

TITLE_WORDS = 5

_LAST_USER_LINE = re.compile(r"^USER: (.+)$", re.MULTILINE)


def has_own_header(names: Iterable[str]) -> bool:
    """Return true where any of these headers, in lower case, is Open WebUI's own."""
    return any(name.startswith("x-openwebui-") for name in names)


def read_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a chat's settings as an endpoint takes them.

    `logit_bias` comes as it was typed: `5432:100, 413:-100`. Raises `RequestError` for any other text.
    """
    bias = given.get("logit_bias")
    if not isinstance(bias, str):
        return dict(given)
    pairs = (pair.rpartition(":") for pair in bias.split(",") if pair.strip())
    try:
        return {**given, "logit_bias": {token.strip(): int(value) for token, _, value in pairs}}
    except ValueError:
        raise RequestError(f"logit_bias is {bias!r}: write it as 5432:100, 413:-100") from None


def is_placeholder(value: str) -> bool:
    """Return true for a value that was to be filled in and was not, as it comes before 0.11."""
    return value.startswith("{{")


def read_question(prompt: str) -> str:
    """Return what the user has typed, without the knowledge that is put before it."""
    return _KNOWLEDGE.sub("", prompt, count=1)


def answer_background_prompt(prompt: str) -> str | None:
    """Return an answer that needs no model, one JSON object; None where the prompt is none of these.

    `title`, `tags` and `follow_ups` are all there: each prompt's reader takes its own key.
    """
    if not prompt.lstrip().startswith(MARKER):
        return None
    asked = _LAST_USER_LINE.search(prompt)
    words = asked[1].split() if asked else []
    title = " ".join(words[:TITLE_WORDS]) or "New chat"
    return json.dumps({"title": title, "tags": ["callboard"], "follow_ups": []}, ensure_ascii=False)
