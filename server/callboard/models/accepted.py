"""The parts of a request that some endpoints refuse or demand, learnt from their refusals."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from callboard._call_ids import nine_characters

Message = dict[str, Any]
Body = dict[str, Any]

OWN_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "id", "type", "function"})
"""The fields of a message and of its calls that every endpoint takes."""
DISPENSABLE_OPTIONS = frozenset(
    {"parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
    | {"stream_options"}
)
"""Options without which the answer is the same, sent by Callboard or by clients such as Codex unasked."""
NO_REASONING = " "
"""The reasoning of an answer that another model wrote: Kimi refuses a call without any, and an empty one."""
NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature of a call that Gemini did not sign: https://ai.google.dev/gemini-api/docs/thought-signatures."""
NO_TOOL = {
    "type": "function",
    "function": {
        "name": "no_tool",
        "description": "Do not call this.",
        "parameters": {"type": "object", "properties": {}},
    },
}
"""The tool that is offered where an endpoint demands one and the model must answer in text."""
BRIDGE = "I have the results."
BEGINNING = "Hello."
GO_ON = "Go on."
NOTHING = "(empty)"
"""The words of messages that an endpoint demands where the chat has none."""

_WANTS_REASONING = re.compile(
    r"reasoning_content\b.*\b(?:missing|required|must be|pass(?:ed)? back)|missing\b.*\breasoning_content",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Demand:
    """A demand that only some endpoints make: the words of their refusals, and the change that meets it."""

    words: re.Pattern[str]
    meet: Callable[[Body], Body]


class Accepted:
    """What an endpoint is known to refuse of requests, and to demand."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self._demands: list[Demand] = []

    def fit(self, body: Body) -> Body:
        """Return the request as the endpoint takes it."""
        messages = [self._without_refused(message) for message in body["messages"]]
        fitting = {**self._without_refused(body), "messages": messages}
        for demand in self._demands:
            fitting = demand.meet(fitting)
        return fitting

    def learn(self, body: Body, words: str) -> bool:
        """Return whether the endpoint's words for refusing `body` name what can be changed: `fit` does so from now on.

        Fields and options are left out if their names are among the words: Groq sends `reasoning` and refuses it.
        """
        for demand in DEMANDS:
            if demand.words.search(words) and demand.meet(body) != body:
                self._demands.append(demand)
                return True
        if _WANTS_REASONING.search(words):
            # It is sent already: its name is among the words, but it is not what is refused.
            return False
        fields = {name for message in body["messages"] for part in (message, *_calls_of(message)) for name in part}
        fields -= OWN_FIELDS
        fields |= DISPENSABLE_OPTIONS & body.keys()
        refused = {name for name in fields if re.search(rf"\b{re.escape(name)}\b", words)}
        self._refused |= refused
        return bool(refused)

    def _without_refused(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a request, a message or a call without the fields that the endpoint refuses."""
        fitting = {name: value for name, value in fields.items() if name not in self._refused}
        if calls := _calls_of(fields):
            fitting["tool_calls"] = [self._without_refused(call) for call in calls]
        return fitting


def _calls_of(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _in_messages(change: Callable[[list[Message]], list[Message]]) -> Callable[[Body], Body]:
    """Return a function that applies `change` to the messages of a request."""
    return lambda body: {**body, "messages": change(body["messages"])}


def _shorten_ids(messages: list[Message]) -> list[Message]:
    changed = []
    for message in messages:
        fitting = dict(message)
        if calls := _calls_of(message):
            fitting["tool_calls"] = [{**call, "id": nine_characters(call["id"])} for call in calls]
        if call_id := message.get("tool_call_id"):
            fitting["tool_call_id"] = nine_characters(call_id)
        changed.append(fitting)
    return changed


def _add_reasoning(messages: list[Message]) -> list[Message]:
    return [
        {"reasoning_content": NO_REASONING, **message} if message["role"] == "assistant" else message
        for message in messages
    ]


def _add_signatures(messages: list[Message]) -> list[Message]:
    """Sign the first call of each message: Gemini signs no other one of an answer."""
    changed = []
    for message in messages:
        first, *others = _calls_of(message) or [{}]
        if first and "extra_content" not in first:
            message = {**message, "tool_calls": [{**first, "extra_content": NO_SIGNATURE}, *others]}
        changed.append(message)
    return changed


def _add_bridges(messages: list[Message]) -> list[Message]:
    changed: list[Message] = []
    for message in messages:
        if message["role"] == "user" and changed and changed[-1]["role"] == "tool":
            changed.append({"role": "assistant", "content": BRIDGE})
        changed.append(message)
    return changed


def _begin_with_user(messages: list[Message]) -> list[Message]:
    first = next((place for place, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if any(message["role"] == "user" for message in messages[first : first + 1]):
        return messages
    return [*messages[:first], {"role": "user", "content": BEGINNING}, *messages[first:]]


def _end_with_user(messages: list[Message]) -> list[Message]:
    return [*messages, {"role": "user", "content": GO_ON}] if messages[-1]["role"] == "assistant" else messages


def _fill_blanks(messages: list[Message]) -> list[Message]:
    return [
        message if message.get("tool_calls") or str(message["content"]).strip() else {**message, "content": NOTHING}
        for message in messages
    ]


def _fill_contents(messages: list[Message]) -> list[Message]:
    return [{**message, "content": ""} if message.get("content") is None else message for message in messages]


def _offer_tools(body: Body) -> Body:
    """Offer a tool that must not be called to a model that is told of earlier calls and offered none."""
    if "tools" in body or not any(_calls_of(message) for message in body["messages"]):
        return body
    return {**body, "tools": [NO_TOOL], "tool_choice": "none"}


DEMANDS = (
    # Mistral.
    Demand(re.compile(r"length of 9\b|9 alphanumeric"), _in_messages(_shorten_ids)),
    Demand(re.compile(r"Unexpected role 'user' after role 'tool'"), _in_messages(_add_bridges)),
    # Mistral and Anthropic, of an answer that is to be continued.
    Demand(re.compile(r"Expected last role User|must end with a user message"), _in_messages(_end_with_user)),
    # The chat templates of Gemma, Llama and others.
    Demand(
        re.compile(r"roles must alternate|first message must (?:use|be|have)", re.IGNORECASE),
        _in_messages(_begin_with_user),
    ),
    # Kimi and Anthropic.
    Demand(re.compile(r"must not be empty|must be non-empty|must have non-empty content"), _in_messages(_fill_blanks)),
    # Kimi for calls, DeepSeek for all answers of a turn with calls.
    Demand(_WANTS_REASONING, _in_messages(_add_reasoning)),
    # Gemini, of calls that were made by another model or written as text.
    Demand(re.compile(r"missing a `?thought_signature"), _in_messages(_add_signatures)),
    # LM Studio and Ollama: `content: null` beside calls.
    Demand(
        re.compile(r"\bcontent\b.{0,80}(?:string|null|nil|none)", re.IGNORECASE | re.DOTALL),
        _in_messages(_fill_contents),
    ),
    # Anthropic behind LiteLLM, Bedrock.
    Demand(re.compile(r"expects the `tools=` param|toolConfig field must be defined"), _offer_tools),
)
