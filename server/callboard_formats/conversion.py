"""Converts values between the types of JSON, without loss."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from callboard_formats.arguments import parse_json

NOT_CONVERTED: Final[Any] = object()
"""The result if a conversion would lose information. It is not None, because None is a valid value."""

_KINDS = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_CONSTANTS = {"true": "true", "false": "false", "null": "null", "none": "null"}
_ZEROS = re.compile(r"\.0+\Z")


def json_type_of(value: Any) -> str:
    """Return the JSON type of a value from `json.loads`."""
    return _KINDS.get(type(value), "object")


def has_type(value: Any, types: Iterable[str]) -> bool:
    """Return whether `value` already has one of the types. The float 5.0 is not an integer."""
    kind = json_type_of(value)
    return any(name == kind or (name == "number" and kind == "integer") for name in types)


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, 1 and true are not equal."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other)


def convert(value: Any, types: Iterable[str]) -> Any:
    """Return `value` converted to the first type that loses nothing; `NOT_CONVERTED` if there is none.

    `"5"` and `5.0` become the integer 5, but 5.5 does not. `"true"` becomes true, but `"yes"` does not. 5 becomes the
    string `"5"`, but 5.5 does not become a string, because it may have been written as 5.50. A string that contains
    the JSON of an object or an array becomes that object or array.
    """
    converted = (_convert(value, json_type_of(value), name) for name in types)
    return next((one for one in converted if one is not NOT_CONVERTED), NOT_CONVERTED)


def _convert(value: Any, kind: str, name: str) -> Any:
    match kind, name:
        case ("number", "integer") if value.is_integer():
            return int(value)
        case ("boolean" | "integer", "string") if not -(10**30) < value < 10**30:
            return NOT_CONVERTED
        case ("boolean" | "integer", "string"):
            return json.dumps(value)
        case ("string", "integer" | "number" | "boolean" | "null" | "array" | "object"):
            text = value.strip()
            text = _ZEROS.sub("", text) if name == "integer" else _CONSTANTS.get(text.casefold(), text)
            return read_as(lambda json_text: parse_json(json_text, strict=False), text, name)
    return NOT_CONVERTED


def read_as(reader: Callable[[str], Any], text: str, name: str) -> Any:
    """Return the result of `reader` for the text if it has the type `name`; otherwise `NOT_CONVERTED`."""
    try:
        value = reader(text)
    except (ValueError, RecursionError):
        return NOT_CONVERTED
    return value if has_type(value, (name,)) else NOT_CONVERTED
