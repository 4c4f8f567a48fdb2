"""The reasons that endpoints give for the end of an answer, as the few words that the tool loop knows. Pure.

OpenAI's are https://platform.openai.com/docs/api-reference/chat/object; gateways pass on those of other makers:
Gemini's (https://ai.google.dev/api/generate-content#FinishReason), Anthropic's
(https://docs.claude.com/en/api/handling-stop-reasons), Mistral's, DeepSeek's and Zhipu's, and those of vLLM and SGLang.
"""

import json
import re
from collections.abc import Mapping

from callboard.models.model import Finish

MAX_WORD_CHARS = 100
"""The most that is kept of an endpoint's own word."""

_WORDS = {
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
KNOWN_REASONS = frozenset({None, *_WORDS})
"""The values of `Finish.reason` that have a meaning here."""

_REASONS = {word.replace("_", ""): reason for reason, words in _WORDS.items() for word in words.split()}
_SAY_MORE = frozenset({"content_filter", "refusal", "malformed_function_call"})
_NO_REASON = frozenset({"", "null", "none", "finishreasonunspecified"})


def read_finish(reason: object, native: object = None) -> Finish | None:
    """Return the end that a choice's `finish_reason` tells of; None where it tells of none yet.

    `native` is OpenRouter's `native_finish_reason`, the word of the model's maker. It counts if it says more than
    `stop` or `error`. Case, `_` and `-` make no difference. Of several words the first that is known counts, for
    example in Gemini's `content_filter: PROHIBITED_CONTENT`.
    """
    if reason is None:
        return None
    if isinstance(reason, Mapping):
        # SGLang's own form: {"type": "stop", "matched": 2}.
        reason = reason.get("type", reason)
    word = reason if isinstance(reason, str) else json.dumps(reason) if reason else ""
    word = " ".join(word.split())[:MAX_WORD_CHARS]
    parts = [re.sub(r"[^a-z]", "", part.lower()) for part in re.split(r"[:.\s]", word)]
    if all(part in _NO_REASON for part in parts):
        return None
    known = next((_REASONS[part] for part in parts if part in _REASONS), word)
    if known in ("stop", "error") and (more := read_finish(native)) and more.reason in _SAY_MORE:
        return more
    return Finish(known, "" if known == word else word)
