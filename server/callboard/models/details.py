"""Fields beside OpenAI's own, put together from the pieces in which endpoints stream them. Pure."""

from collections.abc import Mapping
from typing import Any

REASONING = frozenset({"reasoning", "reasoning_content"})
"""The fields whose pieces are joined as text."""
_JOINED_ENTRIES = ("reasoning.text", "reasoning.summary")


def merge_details(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of both pieces as one."""
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
    """Add an entry, or join it to the one that it goes on with.

    OpenRouter sends the text of one reasoning in entries of one `index`, its signature in the last of them; the
    signature holds for the whole text: https://openrouter.ai/docs/use-cases/reasoning-tokens.
    """
    if isinstance(entry, dict) and entry.get("type") in _JOINED_ENTRIES and entry.get("index") is not None:
        for place, other in enumerate(merged):
            if isinstance(other, dict) and all(other.get(key) == entry.get(key) for key in ("type", "index")):
                told = {key: value for key, value in entry.items() if value is not None}
                texts = {key: other[key] + told[key] for key in ("text", "summary") if other.get(key) and told.get(key)}
                merged[place] = other | told | texts
                return
    merged.append(entry)
