"""The parts of a request that some endpoints refuse or demand, learnt from their refusals."""

import re
from typing import Any

from callboard._call_ids import nine_characters

OWN_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
"""The fields of a message that every endpoint takes."""
DISPENSABLE_OPTIONS = frozenset(
    {"parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
)
"""Options without which the answer is the same, sent by clients such as Codex unasked: an endpoint may refuse them."""
_WANTS_NINE = re.compile(r"length of 9\b|9 alphanumeric")
_IS_WANTED = re.compile(r"missing|required|must be|pass(?:ed)? back", re.IGNORECASE)
NO_REASONING = " "
"""The reasoning of a call that another model wrote: Kimi refuses a call without any, and an empty one."""


class Accepted:
    """What an endpoint is known to refuse of requests, and to demand."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self._wants_reasoning = False
        self._wants_nine = False

    def fit(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request as the endpoint takes it."""
        fitting = {name: value for name, value in body.items() if name not in self._refused}
        fitting["messages"] = [self._fit_message(message) for message in body["messages"]]
        return fitting

    def learn(self, body: dict[str, Any], words: str) -> bool:
        """Return whether the endpoint's words for refusing `body` name what can be changed: `fit` does so from now on.

        Groq sends `reasoning` and refuses it, Kimi and DeepSeek refuse calls without `reasoning_content`, Mistral ids
        that are not nine letters and digits; some do not know `parallel_tool_calls`, to which the loop holds by itself.
        """
        if not self._wants_nine and _WANTS_NINE.search(words):
            self._wants_nine = True
            return True
        if not self._wants_reasoning and "reasoning_content" in words and _IS_WANTED.search(words):
            self._wants_reasoning = True
            return True
        fields = {name for message in body["messages"] for name in message} - OWN_FIELDS - self._refused
        fields |= DISPENSABLE_OPTIONS & body.keys()
        refused = {name for name in fields if re.search(rf"\b{re.escape(name)}\b", words)}
        self._refused |= refused
        return bool(refused)

    def _fit_message(self, message: dict[str, Any]) -> dict[str, Any]:
        fitting = {name: value for name, value in message.items() if name not in self._refused}
        if self._wants_nine:
            fitting = _with_ids_of_nine(fitting)
        if self._wants_reasoning and "reasoning_content" not in self._refused and message.get("tool_calls"):
            fitting.setdefault("reasoning_content", NO_REASONING)
        return fitting


def _with_ids_of_nine(message: dict[str, Any]) -> dict[str, Any]:
    changed = dict(message)
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [{**call, "id": nine_characters(call["id"])} for call in calls]
    if call_id := message.get("tool_call_id"):
        changed["tool_call_id"] = nine_characters(call_id)
    return changed
