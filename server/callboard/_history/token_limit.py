"""Limits the tokens of the history: old results are shortened first, then the oldest turns are dropped. Pure.

A token is estimated at four characters, which is about right for English prose and JSON. Exact counts would need the
tokeniser of every model.
"""

from collections.abc import Sequence
from itertools import pairwise

from callboard._history.turns import ChatDict

CHARS_PER_TOKEN = 4
PART_TOKENS = 1000
"""The estimate for a part that is not text, such as an image: endpoints bill its size, not its base64 text."""
KEPT_CHARS = 400
"""The characters that a shortened tool result keeps."""


def limit_tokens(messages: Sequence[ChatDict], max_tokens: int) -> tuple[list[ChatDict], list[ChatDict]]:
    """Return `messages` shortened to about `max_tokens`, and the messages of the turns that were dropped.

    0 means no limit.

    A turn begins with a question of the user. The instructions before the first turn and the newest turn are never
    changed, even if they exceed the limit alone. A call and its result are in the same turn, so they stay together.
    """
    excess = sum(map(estimate_tokens, messages)) - max_tokens
    if not max_tokens or excess <= 0:
        return list(messages), []
    head, turns = _split_turns(messages)
    for turn in turns[:-1]:
        for index, message in enumerate(turn):
            if excess <= 0:
                break
            shorter = _shorten(message)
            excess -= estimate_tokens(message) - estimate_tokens(shorter)
            turn[index] = shorter
    first = 0
    while excess > 0 and first < len(turns) - 1:
        excess -= sum(map(estimate_tokens, turns[first]))
        first += 1
    end = len(head) + sum(map(len, turns[:first]))
    return [*head, *(message for turn in turns[first:] for message in turn)], list(messages[len(head) : end])


def estimate_tokens(message: ChatDict) -> int:
    content = message.get("content")
    chars = len(content) if isinstance(content, str) else 0
    parts = content if isinstance(content, list) else []
    for part in parts:
        chars += len(part.get("text") or "") if part.get("type") == "text" else PART_TOKENS * CHARS_PER_TOKEN
    for call in message.get("tool_calls") or ():
        chars += len(call["function"]["name"]) + len(call["function"]["arguments"])
    return 4 + chars // CHARS_PER_TOKEN


def _split_turns(messages: Sequence[ChatDict]) -> tuple[list[ChatDict], list[list[ChatDict]]]:
    head: list[ChatDict] = []
    turns: list[list[ChatDict]] = []
    for before, message in pairwise([{"role": ""}, *messages]):
        # A user message after a result has images of the result, see `move_parts`. A question follows an answer.
        if message["role"] == "user" and before["role"] != "tool":
            turns.append([message])
        elif turns:
            turns[-1].append(message)
        else:
            head.append(message)
    return head, turns


def _shorten(message: ChatDict) -> ChatDict:
    content = message.get("content")
    if message["role"] != "tool" or not isinstance(content, str):
        return message
    left_out = len(content) - KEPT_CHARS
    marker = f"\n[… {left_out:,} more characters of this older result are left out]"
    return {**message, "content": content[:KEPT_CHARS] + marker} if left_out > len(marker) else message
