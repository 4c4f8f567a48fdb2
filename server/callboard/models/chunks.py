"""Reads the chunks of a streamed chat completion as deltas. Knows nothing of the network.

Endpoints omit, null and misplace fields. A misplaced field is skipped and is never an error. But a field of a call is
never skipped for its type, because a tool must not run without arguments that its model wrote.

The format is https://platform.openai.com/docs/api-reference/chat/streaming, plus reasoning in one of the fields
`REASONING`, Mistral's `thinking` parts (https://docs.mistral.ai/capabilities/reasoning) and OpenRouter's `images`
(https://openrouter.ai/docs/features/multimodal/image-generation).

OpenAI's finish reasons: https://platform.openai.com/docs/api-reference/chat/object. Gateways pass on those of other
makers: Gemini (https://ai.google.dev/api/generate-content#FinishReason), Anthropic
(https://docs.claude.com/en/api/handling-stop-reasons), Mistral, DeepSeek, Zhipu, vLLM and SGLang.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

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
from callboard.text import storable, storable_value

MESSAGE_FIELDS = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations", "images"}
)
"""The fields of a message that are read here, or that an endpoint never needs back. Some need the reasoning back."""
ARGUMENTS = ("arguments", "parameters", "args", "input")
"""The names of the field with a call's arguments. OpenAI's comes first; some endpoints use another."""
CALL_FIELDS = frozenset({"index", "id", "type", "function", "name", "arguments"})
FUNCTION_FIELDS = frozenset({"name", "arguments"})
REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""The names of the fields with a model's reasoning, whose pieces are joined as text."""
_TEXTS = frozenset({"text", "summary", "thinking"})
"""The fields of an entry of reasoning whose pieces are joined as text."""
MAX_COST = 1e9
"""The largest plausible cost of one answer. Larger numbers are ignored."""

MAX_TOKENS = 1e12
"""The largest plausible number of tokens. Larger numbers are ignored."""

MAX_WORD_CHARS = 100
"""The longest part of an endpoint's own word that is kept."""

_REASON_WORDS = {
    "stop": "stop end_turn stop_sequence eos eos_token complete completed",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "length": "length max_tokens max_output_tokens max_length model_length model_context_window_exceeded",
    "content_filter": "content_filter content_filtered safety recitation blocklist prohibited_content spii language "
    "image_safety image_prohibited_content image_recitation guardrail_intervened sensitive error_toxic",
    "refusal": "refusal refused",
    "malformed_function_call": "malformed_function_call malformed_tool_call unexpected_tool_call malformed_response",
    "error": "error abort aborted cancelled canceled failed timeout network_error server_error internal_error "
    "upstream_error gateway_error insufficient_system_resource too_many_tool_calls missing_thought_signature",
}
KNOWN_REASONS = frozenset({None, *_REASON_WORDS})
"""The values of `Finish.reason` that the tool loop knows."""

_REASONS = {word.replace("_", ""): reason for reason, words in _REASON_WORDS.items() for word in words.split()}
_SPECIFIC_REASONS = frozenset({"content_filter", "refusal", "malformed_function_call"})
_NO_REASON = frozenset({"", "null", "none", "finishreasonunspecified"})

_PICTURES = ("data:image/", "https://", "http://")

_TextPiece = TextDelta | ReasoningDelta | RefusalDelta


class ChunkReader:
    """Reads the chunks of one answer.

    A whole completion, with `message` instead of `delta`, is read too: some endpoints ignore `stream`, and some end a
    stream with the whole message. Parts that were streamed before are then skipped.
    """

    def __init__(self) -> None:
        self._streamed: dict[type[_TextPiece], list[str]] = {TextDelta: [], ReasoningDelta: [], RefusalDelta: []}
        self._pictures: set[str] = set()
        self._finish: Finish | None = None

    def read(self, chunk: object) -> Iterator[ModelDelta]:
        """Yield the deltas of one chunk, in the order reasoning, text, pictures, calls, finish, usage."""
        if not isinstance(chunk, Mapping):
            return
        for choice in _read_list(chunk.get("choices")):
            # Only the first choice is read, because requests ask for one.
            if isinstance(choice, Mapping) and choice.get("index") in (0, "0", None):
                yield from self._read_choice(choice)
        # Moonshot has the usage in the choice, Groq in a field of its own.
        places = (chunk, chunk.get("x_groq"), *_read_list(chunk.get("choices")))
        usages = (place.get("usage") for place in places if isinstance(place, Mapping))
        if (usage := next((one for one in usages if isinstance(one, Mapping)), None)) is not None:
            yield _read_usage(usage)

    def _read_choice(self, choice: Mapping[str, Any]) -> Iterator[ModelDelta]:
        for name in ("delta", "message"):
            if isinstance(fields := choice.get(name), Mapping):
                yield from self._read_fields(fields, is_whole=name == "message")
        finish = read_finish(choice.get("finish_reason"), choice.get("native_finish_reason"))
        # The reason may be repeated, with the whole message or the usage, and then as a plain `stop`.
        if finish and finish != self._finish and (self._finish is None or finish.reason not in ("stop", "tool_calls")):
            self._finish = finish
            yield finish

    def _read_fields(self, fields: Mapping[str, Any], *, is_whole: bool) -> Iterator[ModelDelta]:
        """Yield the deltas of a piece of the message, or of the whole message."""
        pieces = _read_text_pieces(fields)
        if is_whole:
            yield from self._find_new_pieces(pieces)
        else:
            for piece in pieces:
                self._streamed[type(piece)].append(piece.text)
                yield piece
        yield from self._read_pictures(fields)
        for place, call in enumerate(_read_calls(fields)):
            yield _read_tool_call(call, place if is_whole else None)
        if details := _read_details(fields, MESSAGE_FIELDS):
            yield MessageDetails(details, is_whole)

    def _find_new_pieces(self, pieces: Sequence[_TextPiece]) -> Iterator[ModelDelta]:
        for kind, streamed in self._streamed.items():
            whole = "".join(piece.text for piece in pieces if isinstance(piece, kind))
            if new := _find_new_text(whole, "".join(streamed)):
                self._streamed[kind] = [whole]
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


def _read_text_pieces(fields: Mapping[str, Any]) -> list[_TextPiece]:
    """Return the text, reasoning and refusal of a delta or message."""
    pieces: list[_TextPiece] = []
    # MiniMax sends its reasoning only in the details. Those that are texts are encrypted.
    details = [one for one in _read_list(fields.get("reasoning_details")) if isinstance(one, Mapping)]
    thoughts = (*map(fields.get, REASONING), details)
    if reasoning := next(filter(None, map(_read_text, thoughts)), ""):
        pieces.append(ReasoningDelta(reasoning))
    content = fields.get("content")
    if isinstance(content, list):
        pieces += _read_parts(content)
    elif text := _read_text(content):
        pieces.append(TextDelta(text))
    if refusal := _read_text(fields.get("refusal")):
        pieces.append(RefusalDelta(refusal))
    return pieces


def _read_parts(parts: Sequence[object]) -> Iterator[_TextPiece]:
    """Yield the text and reasoning of content in parts. Adjacent parts of the same kind are joined."""
    for kind, run in groupby(map(_read_part, parts), key=type):
        if text := "".join(piece.text for piece in run):
            yield kind(text)


def _read_part(part: object) -> TextDelta | ReasoningDelta:
    if isinstance(part, Mapping) and part.get("type") in ("thinking", "reasoning"):
        return ReasoningDelta(_read_text(part.get(part["type"])) or _read_text(part))
    return TextDelta(_read_text(part))


def _find_new_text(whole: str, known: str) -> str:
    """Return the part of a message's whole text that was not streamed before (`known`).

    Endpoints trim the whole text, change its white space, and remove the thoughts from it or put them back.
    """
    if whole.startswith(known):
        return whole[len(known) :]
    is_known = False
    for text, streamed in ((whole, known), (_drop_thoughts(whole), _drop_thoughts(known))):
        squeezed, start = squeeze(text), squeeze(streamed)
        if squeezed.startswith(start):
            new = skip_solid(text, len(start))
            return new if new.strip() else ""
        is_known = is_known or squeezed in start
    return "" if is_known else f"\n\n{whole}"


def _drop_thoughts(text: str) -> str:
    """Return the text without its thoughts. The first one may lack its opener, which is then part of the prompt."""
    *parts, answer = text.split("</think>")
    return "".join(part[: max(part.find("<think>"), 0)] for part in parts) + answer


def squeeze(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


def skip_solid(text: str, count: int) -> str:
    """Return the text after its first `count` characters that are not white space."""
    for word in re.finditer(r"\S+", text):
        if count <= len(word[0]):
            return text[word.start() + count :]
        count -= len(word[0])
    return ""


def _read_calls(fields: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the entries of `tool_calls`. An entry that is not an object becomes a call of an unknown tool."""
    calls = _read_json(fields.get("tool_calls"))
    if isinstance(calls, Mapping):
        is_numbered = bool(calls) and all(key.isdigit() for key in calls)
        calls = list(calls.values()) if is_numbered else [calls]
    elif not isinstance(calls, list):
        calls = [calls]
    if not any(calls):
        # OpenAI's older form: https://platform.openai.com/docs/api-reference/chat/object
        calls = [fields.get("function_call")]
    entries = [_read_json(call) for call in calls]
    return [call if isinstance(call, Mapping) else {"name": call, "arguments": call} for call in entries if call]


def _read_tool_call(call: Mapping[str, Any], place: int | None = None) -> ToolCallDelta:
    """Return an entry of `tool_calls`. `place` is its position in a whole message, None in a delta."""
    function = _read_json(call.get("function"))
    if not isinstance(function, Mapping):
        function = {"name": function}
    name = call.get("name") if function.get("name") is None else function["name"]
    field, arguments = _find_arguments(function, call)
    return ToolCallDelta(
        index=_read_index(call.get("index")) if place is None else place,
        id=_to_json_text(call.get("id")),
        name=_to_json_text(name),
        arguments=_to_json_text(arguments),
        details={
            name: details
            for name, fields, known in (("call", call, CALL_FIELDS), ("function", function, FUNCTION_FIELDS))
            if (details := _read_details(fields, known | {field}))
        },
        is_whole=place is not None,
    )


def _find_arguments(function: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[str, object]:
    """Return the arguments of a call, or of a piece of one, and the name of their field.

    Endpoints with another field may send an empty `arguments` too, so that empty text counts only if there is nothing
    else. A value of any other type counts and is refused later, because the tool must not run with its defaults.
    """
    found = [
        (field, fields[field]) for field in ARGUMENTS for fields in (function, call) if fields.get(field) is not None
    ]
    return next((pair for pair in found if pair[1] != ""), found[0] if found else (ARGUMENTS[0], None))


def _read_details(fields: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the non-empty fields that are not in `known`."""
    extra = ((name, value) for name, value in fields.items() if name not in known and value not in (None, "", [], {}))
    return {name: storable_value(value) for name, value in extra}


def _read_index(index: object) -> int | str | None:
    if isinstance(index, str | float) and re.fullmatch(r"\s*[0-9]{1,9}(\.0+)?\s*", str(index)):
        return int(float(index))
    return index if type(index) is int else _to_json_text(index)


def _to_json_text(value: object) -> str | None:
    """Return text and None unchanged, and any other value as JSON."""
    if value is None:
        return None
    return storable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _read_json(value: object) -> object:
    """Return the object or list if the value is its JSON text, otherwise the value."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value


def _read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    # DeepSeek and Anthropic report cached tokens in a field of their own. Anthropic's input does not contain them.
    cached_beside = read_count(usage, "prompt_cache_hit_tokens") or read_count(usage, "cache_read_input_tokens")
    apart = sum(read_count(usage, f"cache_{kind}_input_tokens") for kind in ("read", "creation"))
    read = read_count(usage, "prompt_tokens") or read_count(usage, "input_tokens") + apart
    written = read_count(usage, "completion_tokens") or read_count(usage, "output_tokens")
    in_input, in_output = (usage.get(f"{one}_tokens_details") for one in ("prompt", "completion"))
    cached = read_count(in_input or usage.get("input_tokens_details"), "cached_tokens") or cached_beside
    reasoning = read_count(in_output or usage.get("output_tokens_details"), "reasoning_tokens")
    total = read_count(usage, "total_tokens") or read + written
    return TokenUsage(read, written, total, cached, reasoning, _read_cost(usage.get("cost")))


def _read_cost(cost: object) -> float | None:
    """Return the cost of the answer, which OpenRouter and LiteLLM report, or None."""
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if 0 <= cost <= MAX_COST else None


def read_count(tokens: object, key: str) -> int:
    """Return a count of tokens, 0 for a value that is none."""
    count = tokens.get(key) if isinstance(tokens, Mapping) else None
    # Gateways in JavaScript and Lua write 10.0.
    return int(count) if isinstance(count, int | float) and 0 < count < MAX_TOKENS else 0


def _read_text(content: object) -> str:
    """Return the text of a string, a part or a list of parts.

    Mistral answers in parts, which OpenAI uses in requests only.
    """
    if content is None or isinstance(content, bool):
        return ""
    if isinstance(content, str):
        return storable(content)
    if isinstance(content, Mapping):
        return _read_text(content.get("text") or content.get("summary"))
    return "".join(map(_read_text, content)) if isinstance(content, list) else str(content)


def _read_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def read_finish(reason: object, native: object = None) -> Finish | None:
    """Return the `Finish` for a choice's `finish_reason`, or None if the answer has not ended.

    `native` is OpenRouter's `native_finish_reason`, from the model's maker. It is used if it is more specific than
    `stop` or `error`. Case, `_` and `-` are ignored. Of several words the first known one counts, for example in
    Gemini's `content_filter: PROHIBITED_CONTENT`.
    """
    if reason is None:
        return None
    if isinstance(reason, Mapping):
        # SGLang's form: {"type": "stop", "matched": 2}.
        reason = reason.get("type", reason)
    word = reason if isinstance(reason, str) else json.dumps(reason) if reason else ""
    word = " ".join(word.split())[:MAX_WORD_CHARS]
    parts = [re.sub(r"[^a-z]", "", part.lower()) for part in re.split(r"[:.\s]", word)]
    if all(part in _NO_REASON for part in parts):
        return None
    known = next((_REASONS[part] for part in parts if part in _REASONS), word)
    if known in ("stop", "error") and (more := read_finish(native)) and more.reason in _SPECIFIC_REASONS:
        return more
    return Finish(known, "" if known == word else word)


def merge_details(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of two pieces of a stream that OpenAI does not have, merged."""
    return dict(before) | {
        name: _merge(name, before[name], value) if name in before else value for name, value in after.items()
    }


def _merge(name: str, before: Any, after: Any) -> Any:
    match before, after:
        case str(), str() if name in REASONING:
            return before + after
        case dict(), dict():
            return merge_details(before, after)
        case list(), list():
            merged = list(before)
            for entry in after:
                _add_entry(merged, entry)
            return merged
        case _:
            return after


def _add_entry(merged: list[Any], entry: Any) -> None:
    """Add an entry, or merge it into the entry that it continues."""
    for place, other in enumerate(merged):
        if _continues(other, entry):
            fields = {name: value for name, value in entry.items() if value is not None}
            texts = {
                name: other[name] + fields[name]
                for name in _TEXTS
                if isinstance(other.get(name), str) and isinstance(fields.get(name), str)
            }
            merged[place] = other | fields | texts
            return
    merged.append(entry)


def _continues(entry: Any, following: Any) -> bool:
    """Return whether both entries are pieces of one reasoning, whose signature comes with its last piece.

    OpenRouter numbers the reasonings of an answer by `index`. LiteLLM sends the pieces of each one after the other:
    https://openrouter.ai/docs/use-cases/reasoning-tokens, https://docs.litellm.ai/docs/reasoning_content.
    """
    match entry, following:
        case {"type": "thinking"}, {"type": "thinking"}:
            return not entry.get("signature")
        case {"type": "reasoning.text" | "reasoning.summary" as kind, "index": index}, {"type": other, "index": place}:
            return kind == other and index == place and index is not None
        case _:
            return False
