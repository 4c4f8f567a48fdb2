"""Maps the finish reasons of endpoints to the few that the tool loop knows. Pure functions.

OpenAI's reasons: https://platform.openai.com/docs/api-reference/chat/object. Gateways pass on those of other makers:
Gemini (https://ai.google.dev/api/generate-content#FinishReason), Anthropic
(https://docs.claude.com/en/api/handling-stop-reasons), Mistral, DeepSeek, Zhipu, vLLM and SGLang.
"""

import json
import re
from collections.abc import Mapping

from callboard.models.model import Finish

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
