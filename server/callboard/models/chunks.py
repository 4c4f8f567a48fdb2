"""Chunks of a streamed chat completion, read as deltas. Pure: no network, no state.

Endpoints leave out, null and misplace fields: a field that is not where it should be is skipped, and is never an error.
The shape is that of https://platform.openai.com/docs/api-reference/chat/streaming, with
`reasoning_content` (DeepSeek, vLLM, llama.cpp) and `reasoning` (OpenRouter, Ollama) beside it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from callboard._text import storable
from callboard.models.model import (
    Finish,
    MessageDetails,
    ModelDelta,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)

MESSAGE_FIELDS = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations", "images"}
)
"""The fields of a message that are read here or are of no use to the endpoint; its reasoning is wanted back by some."""
CALL_FIELDS = frozenset({"index", "id", "type", "function"})
FUNCTION_FIELDS = frozenset({"name", "arguments"})
MAX_COST = 1e9
"""What one answer may be said to cost: more is no price."""


def read_chunk(chunk: object) -> Iterator[ModelDelta]:
    """Yield the deltas of one chunk, in the order text, reasoning, tool calls, finish, usage.

    A whole completion (`message` where a chunk has `delta`) reads the same way: some
    endpoints ignore `stream`.
    """
    if not isinstance(chunk, Mapping):
        return
    for choice in _read_list(chunk.get("choices")):
        # Only the first choice: more than one was never asked for.
        if isinstance(choice, Mapping) and choice.get("index") in (0, None):
            yield from _read_choice(choice)
    if isinstance(usage := chunk.get("usage"), Mapping):
        yield _read_usage(usage)


def _read_choice(choice: Mapping[str, Any]) -> Iterator[ModelDelta]:
    delta = choice.get("delta") or choice.get("message")
    if isinstance(delta, Mapping):
        if reasoning := _read_text(delta.get("reasoning_content")) or _read_text(delta.get("reasoning")):
            yield ReasoningDelta(reasoning)
        if text := _read_text(delta.get("content")):
            yield TextDelta(text)
        for call in _read_list(delta.get("tool_calls")):
            if isinstance(call, Mapping):
                yield _read_tool_call(call)
        if details := _read_details(delta, MESSAGE_FIELDS):
            yield MessageDetails(details, is_whole=not choice.get("delta"))
    if isinstance(reason := choice.get("finish_reason"), str) and reason:
        yield Finish(reason)


def _read_tool_call(call: Mapping[str, Any]) -> ToolCallDelta:
    index = call.get("index")
    function = call.get("function")
    if not isinstance(function, Mapping):
        function = {}
    return ToolCallDelta(
        index=index if isinstance(index, int) else None,
        id=_read_string(call.get("id")),
        name=_read_string(function.get("name")),
        arguments=_read_string(function.get("arguments")),
        details={
            name: details
            for name, fields, known in (("call", call, CALL_FIELDS), ("function", function, FUNCTION_FIELDS))
            if (details := _read_details(fields, known))
        },
    )


def _read_details(fields: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the fields that are not `known` and hold anything."""
    told = ((name, value) for name, value in fields.items() if name not in known and value not in (None, "", [], {}))
    return {name: storable(value) if isinstance(value, str) else value for name, value in told}


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
    if isinstance(content, str):
        return _read_string(content) or ""
    # Content as a list of parts, as in requests: some endpoints (Mistral) answer that way too.
    parts = (part.get("text") for part in _read_list(content) if isinstance(part, Mapping))
    return "".join(_read_string(part) or "" for part in parts)


def _read_string(value: object) -> str | None:
    return storable(value) if isinstance(value, str) else None


def _read_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
