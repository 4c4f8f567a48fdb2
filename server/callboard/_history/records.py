"""A chat's history as plain values: no database, no protocol."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ChatDict = dict[str, Any]
"""A chat message in the format of OpenAI's chat completions."""


@dataclass(frozen=True, slots=True)
class HistoryCall:
    """A tool call of a chat: stored before its tool runs, replayed in later turns.

    Attributes:
        arguments: The text as the call runs: repaired, changed by the user, without secrets.
        round_index: Counts the rounds of the turn, from 0.
        sequence_index: Counts the calls of the round, from 0.
        details: The provider's data about the call, as in `ProviderDetails`.
        message_id: The client's id of the assistant message.
        result: None until the call has ended; an empty result is "".
        parent_call_id: The call that started the agent which made this call. None for the agent's own calls; only
            these are replayed.
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
    """A stored `tool:status` event of a call; `at` is in seconds since the epoch, `progress` is 0 to 100 or None."""

    status: str
    message: str
    progress: float | None
    at: float


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A stored round: the text before the calls, and the calls in OpenAI's format."""

    text: str
    calls: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The stored turn of a run: the text of the question, the rounds of calls, the last text.

    `place` is the number of questions in the conversation including this one, None if unknown.
    """

    run_id: str
    question: str
    rounds: tuple[StoredRound, ...]
    last_text: str
    place: int | None = None

    @property
    def text(self) -> str:
        """The whole text of the answer, as clients read it that see no calls."""
        return "".join([*(one.text for one in self.rounds), self.last_text])

    @property
    def call_ids(self) -> frozenset[str]:
        return frozenset(call["id"] for one in self.rounds for call in one.calls)

    def as_messages(self, without: frozenset[str] = frozenset()) -> list[ChatDict]:
        """Return the assistant messages of the turn, without the calls whose ids are in `without`.

        `replay` adds the results.
        """
        messages: list[ChatDict] = []
        for one in self.rounds:
            calls = [call for call in one.calls if call["id"] not in without]
            if calls or one.text:
                entry = {"role": "assistant", "content": one.text or None}
                messages.append({**entry, "tool_calls": calls} if calls else entry)
        if self.last_text:
            messages.append({"role": "assistant", "content": self.last_text})
        return messages


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The stored history of a chat: its tool calls, oldest first.

    `answers` are the texts of answers without calls, each with the provider's data about it. `model` is the name of
    the model that the user chose for this chat, None without a choice. `is_missing` is True if the database could not
    be read. `turns` are the turns, oldest first, if they were asked for.
    """

    calls: tuple[HistoryCall, ...] = ()
    answers: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    model: str | None = None
    is_missing: bool = False
    turns: Sequence[StoredTurn] = ()

    @property
    def tool_call_ids(self) -> frozenset[str]:
        return frozenset(call.tool_call_id for call in self.calls)


def message_text(content: str | None) -> str:
    """Return the text of a stored message, which is a plain text or a JSON list of content parts."""
    if not content or not content.startswith("[{"):
        return content or ""
    try:
        parts = json.loads(content)
    except ValueError:
        return content
    if not all(isinstance(part, dict) and "type" in part for part in parts):
        return content
    return "\n".join(str(part["text"]) for part in parts if part["type"] == "text" and "text" in part)
