"""Keeps the fields that an endpoint sends with calls and answers, and sends them back to the same model only.

Some endpoints refuse a tool's result unless the request repeats the fields that came with the call: Gemini its thought
signature (https://ai.google.dev/gemini-api/docs/thought-signatures), Kimi and DeepSeek the reasoning
(https://api-docs.deepseek.com/guides/thinking_mode), OpenRouter's models their `reasoning_details`
(https://openrouter.ai/docs/use-cases/reasoning-tokens). Other models and endpoints never get these fields.
"""

import re
from collections.abc import Mapping, MutableMapping, Sequence
from hashlib import blake2b
from string import whitespace
from typing import Any

from callboard._call_ids import nine_characters
from callboard._formats.call_styles import ModelKey
from callboard.calls import ToolCall
from callboard.models import ChatDict
from callboard.models.chunks import REASONING
from callboard.models.messages import content_text
from callboard_protocol.events import EXTERNAL_ID_PREFIX, FORM_ID_PREFIX

MAX_ID_CHARS = 40
"""OpenAI answers 400 for longer ids: "Expected a string with maximum length 40"."""

MAX_NAME_CHARS = 64
"""OpenAI's limit for the name of a function."""


class ProviderDetails:
    """The provider details of one chat, from the view of one model.

    `kept` maps each call's id, and the `answer_key` of each answer, to an entry in JSON:

    - `origin`: the endpoint and the model that sent it.
    - `message`, `call`, `function`: the fields that OpenAI's API does not have. The fields of a message are kept with
      its first call.
    - `id`: the endpoint's id of the call, if the chat uses another id.
    - `thought`: see `ToolCall`.
    """

    def __init__(self, model: ModelKey | None = None, kept: MutableMapping[str, ChatDict] | None = None) -> None:
        model = model or ModelKey()
        self._origin = [model.endpoint, model.name]
        self._kept: MutableMapping[str, ChatDict] = {} if kept is None else kept

    def note_calls(self, calls: Sequence[ToolCall], message: Mapping[str, Any]) -> None:
        """Keep the fields of the calls of one message, and of the message itself."""
        for number, call in enumerate(calls):
            entry = {"origin": self._origin, **call.details}
            if call.provider_id not in ("", call.id):
                entry["id"] = call.provider_id
            if call.thought:
                entry["thought"] = call.thought
            if message and number == 0:
                entry["message"] = dict(message)
            # A call that runs again after a restart already has its entry.
            self._kept.setdefault(call.id, entry)

    def note_answer(self, text: str, message: Mapping[str, Any], *, follows_calls: bool = False) -> None:
        """Keep the fields of an answer without calls; its reasoning only after calls, where DeepSeek requires it."""
        fields = {name: value for name, value in message.items() if follows_calls or name not in REASONING}
        if fields:
            self._kept[answer_key(text)] = {"origin": self._origin, "message": fields}

    @property
    def thoughts(self) -> dict[str, str]:
        """The `thought` of each call that has one, by the call's id, for formats that show it to the model again."""
        return {call_id: entry["thought"] for call_id, entry in self._kept.items() if "thought" in entry}

    def outgoing(self, messages: Sequence[ChatDict]) -> list[ChatDict]:
        """Return the messages with the fields that this model sent with them.

        A call's id that another model made, or that Callboard made for a client, is replaced by nine letters and
        digits, because Mistral requires that form. So is an id of more than 40 characters, which OpenAI refuses.
        """
        ids: dict[str, str] = {}
        used: set[str] = set()
        sent: list[ChatDict] = []
        for message in messages:
            if message["role"] == "tool":
                call_id = message.get("tool_call_id") or ""
                sent.append({**message, "tool_call_id": ids.get(call_id, call_id)})
            elif calls := message.get("tool_calls"):
                asked = [self._outgoing_call(call, ids, used) for call in calls]
                sent.append({**self._own(calls[0]["id"]).get("message", {}), **message, "tool_calls": asked})
            elif message["role"] == "assistant" and self._kept:
                key = answer_key(content_text(message.get("content")))
                sent.append({**self._own(key).get("message", {}), **message})
            else:
                sent.append(message)
        return sent

    def _own(self, key: str) -> ChatDict:
        """Return the entry of `key` if this model sent it, otherwise {}."""
        entry = self._kept.get(key, {})
        return entry if entry.get("origin") == self._origin else {}

    def _outgoing_call(self, call: ChatDict, ids: dict[str, str], used: set[str]) -> ChatDict:
        call_id = call["id"]
        entry = self._own(call_id)
        is_anothers = not entry and (
            "origin" in self._kept.get(call_id, {})
            or call_id.startswith((EXTERNAL_ID_PREFIX, FORM_ID_PREFIX))
            or len(call_id) > MAX_ID_CHARS
        )
        outgoing_id = entry.get("id") or (nine_characters(call_id) if is_anothers else call_id)
        # Some endpoints start numbering again with each answer.
        text = call_id
        while outgoing_id in used:
            outgoing_id, text = nine_characters(text), f"{text} "
        ids[call_id] = outgoing_id
        used.add(outgoing_id)
        # Models invent names, which OpenAI, Anthropic and Bedrock then refuse in every later request of the chat:
        # https://github.com/pydantic/pydantic-ai/issues/4585
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", call["function"]["name"])[:MAX_NAME_CHARS] or "_"
        function = {**entry.get("function", {}), **call["function"], "name": name}
        return {**entry.get("call", {}), "id": outgoing_id, "type": "function", "function": function}


def answer_key(text: str) -> str:
    """Return the key of an answer's entry. It ignores white space, which clients change when they send text back."""
    # Not `split`, which keeps all other requests waiting if a text has millions of words.
    solid = text.encode(errors="surrogatepass").translate(None, whitespace.encode())
    return f"answer {blake2b(solid, digest_size=16).hexdigest()}"
