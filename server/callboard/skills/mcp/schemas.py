"""A server's JSON schema as models may see it and Callboard may check by it."""

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

MAX_SCHEMA_CHARS = 50_000
MAX_DESCRIPTION_CHARS = 4_000

_MAPS = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"enum", "const", "default", "examples", "required"})
_DROPPED = frozenset({"pattern", "patternProperties"})
_SPACES = re.compile(r"[^\S\n]+")


def readable_text(text: str, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """A server's words without what nobody sees: control characters, directions and tags, which could hide orders."""
    shown = "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs"))
    shown = _SPACES.sub(" ", shown).strip()
    return shown if len(shown) <= limit else shown[:limit] + "…"


def arguments_schema(given: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments; raises `ValueError` where it is too large.

    Regular expressions are left to the server: a hostile one could keep us matching for ever.
    """
    if len(json.dumps(given)) > MAX_SCHEMA_CHARS:
        raise ValueError(f"its schema is over {MAX_SCHEMA_CHARS} characters")
    schema = {"type": "object", **_cleaned(given)}
    # Many endpoints refuse an object without properties.
    schema.setdefault("properties", {})
    return schema


def _cleaned(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _value(key, value) for key, value in schema.items() if key not in _DROPPED}


def _value(key: str, value: Any) -> Any:
    match value:
        case str() if key in ("description", "title"):
            return readable_text(value)
        case dict() if key in _MAPS:
            return {name: _cleaned(one) if isinstance(one, dict) else one for name, one in value.items()}
        case dict() if key not in _VALUES:
            return _cleaned(value)
        case list() if key not in _VALUES:
            return [_cleaned(one) if isinstance(one, dict) else one for one in value]
        case _:
            return value
