"""Merges the pieces of streamed fields that OpenAI does not have. Pure functions."""

from collections.abc import Mapping
from typing import Any

REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""The names of the fields with a model's reasoning, whose pieces are joined as text."""
_TEXTS = frozenset({"text", "summary", "thinking"})


def merge_details(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of both pieces, merged."""
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
