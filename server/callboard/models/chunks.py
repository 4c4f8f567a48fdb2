"""Chunks of a streamed chat completion, read as deltas. Knows no network.

Endpoints leave out, null and misplace fields: a field that is not where it should be is skipped, and is never an error.
A field of a call is never skipped for its type: a tool must not run without what its model wrote.
The shape is that of https://platform.openai.com/docs/api-reference/chat/streaming, with the reasoning in one of the
fields `REASONING`, Mistral's parts of `thinking`
(https://docs.mistral.ai/capabilities/reasoning) and OpenRouter's `images`
(https://openrouter.ai/docs/features/multimodal/image-generation) beside it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from callboard._text import storable, storable_value
from callboard.models.details import REASONING
from callboard.models.finish_reasons import read_finish
from callboard.models.model import (
    Finish,
    MessageDetails,
    ModelDelta,
    PictureDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)

MESSAGE_FIELDS = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations", "images"}
)
"""The fields of a message that are read here or are of no use to the endpoint; its reasoning is wanted back by some."""
CALL_FIELDS = frozenset({"index", "id", "type", "function", "name", "arguments"})
FUNCTION_FIELDS = frozenset({"name", "arguments"})
MAX_COST = 1e9
"""What one answer may be said to cost: more is no price."""

_PICTURES = ("data:image/", "https://", "http://")

_Words = TextDelta | ReasoningDelta | RefusalDelta


class ChunkReader:
    """A reader of the chunks of one answer.

    A whole completion (`message` where a chunk has `delta`) reads the same way: some endpoints ignore `stream`, and
    some end a stream with the whole message, of which only what was not streamed before is new.
    """

    def __init__(self) -> None:
        self._words: dict[type[_Words], list[str]] = {TextDelta: [], ReasoningDelta: [], RefusalDelta: []}
        self._pictures: set[str] = set()
        self._finish: Finish | None = None

    def read(self, chunk: object) -> Iterator[ModelDelta]:
        """Yield the deltas of one chunk, in the order reasoning, text, pictures, calls, finish, usage."""
        if not isinstance(chunk, Mapping):
            return
        for choice in _read_list(chunk.get("choices")):
            # Only the first choice: more than one was never asked for.
            if isinstance(choice, Mapping) and choice.get("index") in (0, "0", None):
                yield from self._read_choice(choice)
        if isinstance(usage := chunk.get("usage"), Mapping):
            yield _read_usage(usage)

    def _read_choice(self, choice: Mapping[str, Any]) -> Iterator[ModelDelta]:
        if isinstance(delta := choice.get("delta"), Mapping):
            for piece in _read_words(delta):
                self._words[type(piece)].append(piece.text)
                yield piece
            yield from self._read_pictures(delta)
            for call in _read_calls(delta):
                yield _read_tool_call(call)
            if details := _read_details(delta, MESSAGE_FIELDS):
                yield MessageDetails(details)
        if isinstance(message := choice.get("message"), Mapping):
            yield from self._read_new_words(message)
            yield from self._read_pictures(message)
            for place, call in enumerate(_read_calls(message)):
                yield _read_tool_call(call, place)
            if details := _read_details(message, MESSAGE_FIELDS):
                yield MessageDetails(details, is_whole=True)
        finish = read_finish(choice.get("finish_reason"), choice.get("native_finish_reason"))
        # It may be said again with the whole message or the usage, and then as a plain `stop`.
        if finish and finish != self._finish and (self._finish is None or finish.reason not in ("stop", "tool_calls")):
            self._finish = finish
            yield finish

    def _read_new_words(self, message: Mapping[str, Any]) -> Iterator[ModelDelta]:
        pieces = _read_words(message)
        for kind, said in self._words.items():
            whole = "".join(piece.text for piece in pieces if isinstance(piece, kind))
            if new := _cut_known(whole, "".join(said)):
                self._words[kind] = [whole]
                yield kind(new)

    def _read_pictures(self, fields: Mapping[str, Any]) -> Iterator[PictureDelta]:
        parts = [part for part in _read_list(fields.get("content")) if isinstance(part, Mapping)]
        images = [
            part.get("image_url") if isinstance(part, Mapping) else part for part in _read_list(fields.get("images"))
        ]
        for image in (*images, *(part.get("image_url") for part in parts)):
            url = image.get("url") if isinstance(image, Mapping) else image
            if isinstance(url, str) and url.startswith(_PICTURES) and url not in self._pictures:
                self._pictures.add(url)
                yield PictureDelta(url)


def _read_words(fields: Mapping[str, Any]) -> list[_Words]:
    """Return the words of a delta or message."""
    words: list[_Words] = []
    if reasoning := next(filter(None, (_read_text(fields.get(name)) for name in REASONING)), ""):
        words.append(ReasoningDelta(reasoning))
    content = fields.get("content")
    if isinstance(content, list):
        words += _read_parts(content)
    elif text := _read_text(content):
        words.append(TextDelta(text))
    if refusal := _read_text(fields.get("refusal")):
        words.append(RefusalDelta(refusal))
    return words


def _read_parts(parts: Sequence[object]) -> Iterator[_Words]:
    """Yield the words of a content in parts, those of one kind that follow each other as one."""
    for kind, run in groupby(map(_read_part, parts), key=type):
        if text := "".join(piece.text for piece in run):
            yield kind(text)


def _read_part(part: object) -> TextDelta | ReasoningDelta:
    if isinstance(part, Mapping) and part.get("type") in ("thinking", "reasoning"):
        return ReasoningDelta(_read_text(part.get(part["type"])) or _read_text(part))
    return TextDelta(_read_text(part))


def _cut_known(whole: str, known: str) -> str:
    """Return what is new in the whole text of a message, of which `known` was streamed."""
    # Endpoints trim the whole text, or take the thoughts out of it.
    for start in (known, known.strip()):
        if whole.startswith(start):
            return whole[len(start) :]
    return "" if whole.strip() in known else f"\n\n{whole}"


def _read_calls(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the entries of `tool_calls`, those that are no objects as calls of what they are, which no tool is."""
    calls = _read_json(fields.get("tool_calls"))
    if isinstance(calls, Mapping):
        is_numbered = bool(calls) and all(key.isdigit() for key in calls)
        calls = list(calls.values()) if is_numbered else [calls]
    elif not isinstance(calls, list):
        calls = [calls]
    if not any(calls):
        # OpenAI's own older form: https://platform.openai.com/docs/api-reference/chat/object
        calls = [fields.get("function_call")]
    entries = [_read_json(call) for call in calls]
    return [call if isinstance(call, Mapping) else {"name": call, "arguments": call} for call in entries if call]


def _read_tool_call(call: Mapping[str, Any], place: int | None = None) -> ToolCallDelta:
    """Return an entry of `tool_calls`; `place` is given in a whole message."""
    function = _read_json(call.get("function"))
    if not isinstance(function, Mapping):
        function = {"name": function}
    name, arguments = (call.get(key) if function.get(key) is None else function[key] for key in ("name", "arguments"))
    return ToolCallDelta(
        index=_read_index(call.get("index")) if place is None else place,
        id=_write(call.get("id")),
        name=_write(name),
        arguments=_write(arguments),
        details={
            name: details
            for name, fields, known in (("call", call, CALL_FIELDS), ("function", function, FUNCTION_FIELDS))
            if (details := _read_details(fields, known))
        },
        is_whole=place is not None,
    )


def _read_details(fields: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the fields that are not `known` and hold anything."""
    told = ((name, value) for name, value in fields.items() if name not in known and value not in (None, "", [], {}))
    return {name: storable_value(value) for name, value in told}


def _read_index(index: object) -> int | str | None:
    if isinstance(index, str | float) and re.fullmatch(r"\s*[0-9]{1,9}(\.0+)?\s*", str(index)):
        return int(float(index))
    return index if type(index) is int else _write(index)


def _write(value: object) -> str | None:
    """Return text as it is, None as None and everything else as JSON."""
    if value is None:
        return None
    return storable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _read_json(value: object) -> object:
    """Return the object or list that a text is, or the value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value


def _read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    read, written, total = (_read_count(usage, key) for key in ("prompt_tokens", "completion_tokens", "total_tokens"))
    # DeepSeek tells of its cache beside the tokens.
    cached_beside = _read_count(usage, "prompt_cache_hit_tokens")
    cached = _read_count(usage.get("prompt_tokens_details"), "cached_tokens") or cached_beside
    reasoning = _read_count(usage.get("completion_tokens_details"), "reasoning_tokens")
    return TokenUsage(read, written, total or read + written, cached, reasoning, _read_cost(usage.get("cost")))


def _read_cost(cost: object) -> float | None:
    """Return what the answer cost, as OpenRouter and LiteLLM tell; None where the endpoint does not."""
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if 0 <= cost <= MAX_COST else None


def _read_count(tokens: object, key: str) -> int:
    count = tokens.get(key) if isinstance(tokens, Mapping) else None
    return count if isinstance(count, int) and count > 0 else 0


def _read_text(content: object) -> str:
    """Return a text, or that of a part or a list of parts, as requests have them: Mistral answers that way too."""
    if content is None or isinstance(content, bool):
        return ""
    if isinstance(content, str):
        return storable(content)
    if isinstance(content, Mapping):
        return _read_text(content.get("text"))
    return "".join(map(_read_text, content)) if isinstance(content, list) else str(content)


def _read_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
