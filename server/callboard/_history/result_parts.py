"""Pictures and other parts of results that are not text, where every endpoint takes them: in a message of the user's.

In a tool's message OpenAI allows text alone: https://platform.openai.com/docs/api-reference/chat/create. Pure.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from callboard._history.records import ChatDict

WORDS = "Of the tool results above, {call_id} holds this beside its text:"
STAND_IN = "[The result holds no text. What it holds is in the next message.]"


def move_parts(messages: Iterable[ChatDict]) -> list[ChatDict]:
    """Return the messages; parts that are not text follow the results that held them, as one user's message."""
    moved: list[ChatDict] = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        if not is_result:
            moved += group
            continue
        others: list[dict[str, Any]] = []
        for message in group:
            result, parts = _split(message)
            moved.append(result)
            others += parts
        if others:
            moved.append({"role": "user", "content": others})
    return moved


def _split(message: ChatDict) -> tuple[ChatDict, list[dict[str, Any]]]:
    """Return the result with its text alone, and the other parts after a line that says whose they are."""
    content = message.get("content")
    if not isinstance(content, list):
        return message, []
    others = [part for part in content if part.get("type") != "text"]
    if not others:
        return message, []
    text = "\n".join(part["text"] for part in content if part.get("type") == "text" and part.get("text"))
    words = WORDS.format(call_id=message.get("tool_call_id"))
    return {**message, "content": text or STAND_IN}, [{"type": "text", "text": words}, *others]
