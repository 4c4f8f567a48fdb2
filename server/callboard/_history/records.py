"""A chat's history as plain values: no database, no protocol."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ChatDict = dict[str, Any]
"""A message of a chat, OpenAI's form."""


@dataclass(frozen=True, slots=True)
class HistoryCall:
    """A tool call of a chat, as it is written before it runs and replayed afterwards.

    `arguments` is the text as the model wrote it. `round_index` counts the sequential rounds of the turn and
    `sequence_index` the calls of one round, both from 0. `details` is what the model sent beside it, as
    `ProviderDetails` has it. `message_id` is the client's assistant message. `result` is None while nothing has come
    back; an empty one is an answer too. `parent_call_id` is the call that started the agent that made this one, None
    for the agent's own calls: these alone are replayed.
    """

    tool_call_id: str
    tool_name: str
    arguments: str
    round_index: int = 0
    sequence_index: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    result: str | None = None
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredStatus:
    """A `tool:status` of a call; `at` in seconds since the epoch, `progress` 0 to 100 or None."""

    status: str
    message: str
    progress: float | None
    at: float


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The history of a chat so far: every tool call, oldest first.

    `answers` are texts of answers without calls, each with what the model sent beside it. `model` is the one that was
    chosen for the chat, None if none was. `is_missing`: there may be a history, but it could not be read.
    """

    calls: tuple[HistoryCall, ...] = ()
    answers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    model: str | None = None
    is_missing: bool = False

    @property
    def tool_call_ids(self) -> frozenset[str]:
        """The ids of the calls."""
        return frozenset(call.tool_call_id for call in self.calls)


def message_text(content: str | None) -> str:
    """Return what a stored message says: its text, or the text parts of a list of parts as JSON."""
    if not content or not content.startswith("[{"):
        return content or ""
    try:
        parts = json.loads(content)
    except ValueError:
        return content
    if not all(isinstance(part, dict) and "type" in part for part in parts):
        return content
    return "\n".join(str(part["text"]) for part in parts if part["type"] == "text" and "text" in part)
