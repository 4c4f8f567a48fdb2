"""The finish reasons of endpoints."""

import pytest

from callboard.models.chunks import read_finish
from callboard.models.model import Finish

REASONS: list[tuple[object, str]] = [
    ("stop", "stop"),
    ("end_turn", "stop"),
    ({"type": "stop", "matched": 2}, "stop"),
    ("MAX_TOKENS", "length"),
    ({"type": "length", "length": 16}, "length"),
    ("content_filter", "content_filter"),
    ("SAFETY", "content_filter"),
    ("content_filter: PROHIBITED_CONTENT", "content_filter"),
    ("refusal", "refusal"),
    ("malformed_function_call", "malformed_function_call"),
    ("function_call_filter: MALFORMED_FUNCTION_CALL", "malformed_function_call"),
    ("abort", "error"),
    ("FinishReason.STOP", "stop"),
    ("quota of the moon", "quota of the moon"),
]


@pytest.mark.parametrize(("said", "reason"), REASONS, ids=str)
def test_finish_words_of_each_maker_are_mapped_and_kept(said: object, reason: str) -> None:
    finish = read_finish(said)
    assert finish is not None
    assert finish.reason == reason
    assert isinstance(said, dict) or (finish.word or finish.reason) == said


NATIVE_REASONS: list[tuple[object, str, str | None]] = [
    ("stop", "MALFORMED_FUNCTION_CALL", "malformed_function_call"),
    ("error", "MALFORMED_FUNCTION_CALL", "malformed_function_call"),
    ("stop", "max_tokens", "stop"),
    ("tool_calls", "end_turn", "tool_calls"),
    (None, "SAFETY", None),
]


@pytest.mark.parametrize(("said", "native", "reason"), NATIVE_REASONS)
def test_openrouter_native_reason_is_used_if_more_specific(said: object, native: str, reason: str | None) -> None:
    finish = read_finish(said, native)
    assert (finish.reason if finish else None) == reason


@pytest.mark.parametrize("said", [None, "", "null", "None", False, {}, []])
def test_missing_reason_is_no_finish(said: object) -> None:
    assert read_finish(said) is None


def test_a_long_reason_is_cut() -> None:
    assert read_finish("x" * 1000) == Finish("x" * 100)
