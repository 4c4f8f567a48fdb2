"""Marks the messages of a request to a model as replayed, compacted, shortened or new. Does no I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.calls import ToolCall
from callboard.models import ChatDict
from callboard.models.messages import content_text
from callboard.storage.summaries import ResultSize

_SHORTENED = re.compile(r"\[… ([\d,]+) more characters of this older result are left out\]$")


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark on a message. `meaning` is empty if the page explains the word elsewhere."""

    word: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of a request. `parts` is the number of its parts that are not text, such as pictures."""

    number: int
    role: str
    text: str
    calls: tuple[ToolCall, ...]
    call_id: str | None
    marks: tuple[Mark, ...]
    parts: int

    @property
    def chars(self) -> int:
        """The number of characters in its text and in the arguments of its calls."""
        return len(self.text) + sum(len(call.arguments_text) for call in self.calls)


def mark_messages(
    messages: Sequence[ChatDict], results: Mapping[str, ResultSize], run_id: str, first_new: int
) -> list[SentMessage]:
    """Return the messages with their marks.

    `results` are the sizes of the stored results, by call id. `first_new` is the index of the first message that the
    previous request did not have.
    """
    return [_mark(number, message, results, run_id, first_new) for number, message in enumerate(messages)]


def _mark(
    number: int, message: ChatDict, results: Mapping[str, ResultSize], run_id: str, first_new: int
) -> SentMessage:
    content = message.get("content")
    text = content if isinstance(content, str) else content_text(content)
    calls = tuple(map(_read_call, message.get("tool_calls") or ()))
    call_id = message.get("tool_call_id")
    marks: list[Mark] = []
    if first_new and number >= first_new:
        marks.append(Mark("new"))
    ids = [call.id for call in calls]
    if call_id and not calls:
        ids = [str(call_id)]
    kept = [results[one] for one in ids if one in results]
    if any(one.run_id != run_id for one in kept):
        marks.append(Mark("replayed", "of an earlier turn, inserted from the stored calls"))
    if call_id and kept:
        marks += _mark_result(text, kept[0])
    parts = sum(part.get("type") != "text" for part in content) if isinstance(content, list) else 0
    return SentMessage(number + 1, str(message.get("role", "")), text, calls, call_id, tuple(marks), parts)


def _mark_result(text: str, kept: ResultSize) -> list[Mark]:
    if shortened := _SHORTENED.search(text):
        meaning = f"{shortened[1]} characters of it are left out: the history is limited (CALLBOARD_HISTORY_TOKENS)"
        return [Mark("shortened", meaning)]
    if kept.replayed_chars < kept.chars and len(text) < kept.chars:
        meaning = (
            f"{kept.replayed_chars:,} of {kept.chars:,} characters: the sources that the answer cited "
            "(CALLBOARD_COMPACT_RESULTS)"
        )
        return [Mark("compacted", meaning)]
    return []


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    return ToolCall(str(call.get("id", "")), str(function.get("name", "")), str(function.get("arguments", "")))
