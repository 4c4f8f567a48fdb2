"""Reads the text of a call's arguments as a JSON object. Errors are messages that tell the model what to change."""

import ast
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from callboard_formats.json_text import ANOTHER_OBJECT
from callboard_formats.syntax import InvalidArguments

EXCERPT_CHARS = 120

MAX_REPAIR_CHARS = 32_000
"""The length limit of text that is repaired. Longer text must be valid JSON, because repairs would take too long."""

MAX_LITERAL_CHARS = 20_000
"""The length limit of text for `ast`, whose use of memory has no other limit."""


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """Arguments, and a short text about each repair that was necessary to read them."""

    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()


def read_arguments(text: str, schema: Mapping[str, Any]) -> ReadArguments:
    """Return the object that `text` is or contains; {} for empty text.

    The first of these readings that succeeds is used:

    1. JSON. If the value is a string, its content is read again.
    2. JSON with control characters in its strings.
    3. The first balanced object in the text, as JSON.
    4. This object with doubled backslashes.
    5. This object as Python literals.

    `schema` is the schema of the tool's parameters. The arguments are not checked against it. It decides whether `null`
    means no arguments, and error messages list its keys.

    Raises `InvalidArguments` if there is no object, if the text ends inside the object, and for NaN, Infinity, repeated
    keys, and two different objects.
    """
    if not text.strip():
        return ReadArguments({})
    try:
        read = _try_readings(_join_surrogates(text), unwrap=True)
        if _SURROGATE.search(text):
            _refuse_lone_surrogates(read.value)
    except (ValueError, RecursionError) as error:
        raise _make_json_error(error, text, schema) from error
    match read.value:
        case dict() as arguments:
            return ReadArguments(arguments, read.repairs)
        case None if not schema.get("required"):
            return ReadArguments({}, (*read.repairs, "null read as no arguments"))
        case other:
            raise _make_object_error(other, text, schema)


def parse_arguments(text: str) -> dict[str, Any]:
    """Return `text`, which must be one JSON object, without repairs; {} for empty text.

    Raises `InvalidArguments` with the position of the error for any other text.
    """
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise _make_json_error(error, text, {}) from error
    if not isinstance(value, dict):
        raise _make_object_error(value, text, {})
    return value


KINDS = {
    type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list",
}  # fmt: skip
"""The names of JSON's types in error messages, by Python type."""


@dataclass(frozen=True, slots=True)
class _Reading:
    value: Any
    repairs: tuple[str, ...] = ()


class _Unrepairable(ValueError):
    """The text contains NaN, Infinity, a repeated key or two objects, so that any repair would be a guess."""


def _try_readings(text: str, *, unwrap: bool) -> _Reading:
    """Return the result of the first reading that succeeds. Raises `ValueError` with the error of `text` as JSON."""
    try:
        read = _read_json(text)
    except json.JSONDecodeError as error:
        found = _read_first_object(text)
        if found is not None:
            return found
        raise ValueError(_describe_json_error(text, error)) from error
    if isinstance(read.value, str) and unwrap:
        inner = _try_readings(read.value, unwrap=False) if read.value.strip() else _Reading({})
        return _Reading(inner.value, (*read.repairs, "unwrapped from a JSON string", *inner.repairs))
    return read


def _read_json(text: str) -> _Reading:
    """Read all of `text` as one JSON value."""
    try:
        return _Reading(parse_json(text))
    except json.JSONDecodeError as error:
        try:
            return _Reading(parse_json(text, strict=False), ("control characters in a string allowed",))
        except json.JSONDecodeError:
            raise error from None


def _read_first_object(text: str) -> _Reading | None:
    """Read the first object in `text`. Return None if there is none, or if it cannot be read."""
    start = text.find("{")
    if start < 0 or len(text) > MAX_REPAIR_CHARS:
        return None
    end = _find_object_end(text, start)
    if end is None:
        return None
    around = text[:start] + text[end:]
    aside = ("text around the object left out",) if around.strip() else ()
    candidate = text[start:end]
    if not candidate.strip("{} \t\r\n") and _count_letters(_FENCE.sub("", around)):
        # "Use {} here" is prose. It must not be read as a call without arguments.
        return None
    second = ANOTHER_OBJECT.match(text, end)
    if second and text[second.end() : _find_object_end(text, second.end())] != candidate:
        raise _Unrepairable("there are two objects, and it is not clear which one is meant")
    for reader in (_read_json, _read_with_doubled_backslashes, _read_python_literal):
        try:
            read = reader(candidate)
        except _Unrepairable:
            raise
        except ValueError:
            continue
        return _Reading(read.value, (*aside, *read.repairs))
    return None


_NO_ESCAPE = re.compile(r'(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\', re.DOTALL)


def _read_with_doubled_backslashes(candidate: str) -> _Reading:
    """Read JSON whose strings contain backslashes that begin no escape, for example paths and LaTeX."""
    doubled = _NO_ESCAPE.sub(lambda found: found[1] or "\\\\", candidate)
    return _Reading(_read_json(doubled).value, ("backslashes doubled",))


_TOKENS = re.compile(r'[{}"]|\\.|(?<=[\[{,:])\s*\'', re.DOTALL)
_IN_DOUBLE = re.compile(r'\\.|"', re.DOTALL)
_IN_SINGLE = re.compile(r"\\.|'", re.DOTALL)


def _find_object_end(text: str, start: int) -> int | None:
    """Return the end of the object that begins at `start`; None if the text ends inside it.

    Braces in strings are ignored. A single quotation mark begins a string only at the beginning of a key or a value.
    """
    depth = 0
    at = start
    while (token := _TOKENS.search(text, at)) is not None:
        at = token.end()
        match token[0][-1] if token[0][0] != "\\" else "":
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return at
            case '"' | "'" as quote:
                closed = _find_string_end(text, at, _IN_DOUBLE if quote == '"' else _IN_SINGLE)
                if closed is None:
                    return None
                at = closed
    return None


def _find_string_end(text: str, at: int, tokens: re.Pattern[str]) -> int | None:
    for token in tokens.finditer(text, at):
        if token[0][0] != "\\":
            return token.end()
    return None


def _read_python_literal(candidate: str) -> _Reading:
    value = parse_python_literal(candidate)
    if not isinstance(value, dict):
        raise ValueError("no Python dictionary")  # noqa: TRY004 - every reading fails with a ValueError
    return _Reading(value, ("read as Python literals",))


def parse_python_literal(text: str) -> Any:
    """Return the value of a Python literal as a JSON value. Raises `ValueError` for any other text."""
    if len(text) > MAX_LITERAL_CHARS:
        raise ValueError("too long for Python literals")
    try:
        with warnings.catch_warnings():
            # Python warns about unknown escapes (`'\d'`). The warnings must not appear in the server's log.
            warnings.simplefilter("ignore")
            return evaluate_literal(ast.parse(text.strip(), mode="eval"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no Python literals") from error


def evaluate_literal(tree: ast.expr | ast.Expression) -> Any:
    """Return the value of a Python literal as a JSON value.

    Raises `ValueError` or `TypeError` for any other expression, and `MemoryError` or `RecursionError` if it is nested
    too deeply.
    """
    _refuse_duplicate_keys(tree)
    value = _convert_to_json(ast.literal_eval(tree))
    _refuse_lone_surrogates(value)
    return value


def _refuse_duplicate_keys(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)] if isinstance(node, ast.Dict) else []
        if len(set(keys)) < len(keys):
            raise ValueError("a key is given twice")


def _convert_to_json(value: Any) -> Any:
    """Return `value` with tuples as lists. Raises `ValueError` for sets, bytes and keys that are not strings."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_convert_to_json(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _convert_to_json(item) for key, item in value.items()}
        case _:
            raise ValueError(f"JSON has no {type(value).__name__}")


_FENCE = re.compile(r"```\w*")
_STRUCTURE = re.compile(r"[\s\"'`“”‘’,:;{}\[\]\\]+")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)


def _count_letters(text: str) -> int:
    """Return the number of characters in `text` without white space and JSON's punctuation."""
    return len(_STRUCTURE.sub("", _ESCAPE.sub("", text)))


def parse_json(text: str, *, strict: bool = True) -> Any:
    """Return the JSON value of `text`. Without `strict`, its strings may contain control characters.

    Raises `ValueError` for text that is not JSON, for NaN and Infinity, for a lone surrogate, and for a repeated key.
    Raises `RecursionError` if the text is nested too deeply.
    """
    value = json.loads(
        text,
        strict=strict,
        parse_constant=_refuse_constant,
        parse_float=_parse_finite,
        object_pairs_hook=_build_object,
    )
    if _SURROGATE.search(text):
        _refuse_lone_surrogates(value)
    return value


def _build_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        counted = Counter(key for key, _ in members)
        repeated = next(key for key, count in counted.items() if count > 1)
        raise _Unrepairable(f"'{excerpt(repeated)}' is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    # Python's parser accepts NaN and Infinity, but other JSON parsers would refuse an event with them.
    raise _Unrepairable(f"{name} is not JSON")


def _parse_finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise _Unrepairable(f"{excerpt(digits)} is too large")
    return number


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def _join_surrogates(text: str) -> str:
    """Return `text` with adjacent surrogates joined to characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if _SURROGATE.search(text) else text


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Unrepairable("it contains half of a UTF-16 surrogate pair") from None


def _describe_json_error(text: str, error: ValueError) -> str:
    start = text.find("{")
    if start >= 0 and _find_object_end(text, start) is None:
        return f"cut off before the end: {error}"
    return str(error)


def _make_json_error(error: Exception, text: str, schema: Mapping[str, Any]) -> InvalidArguments:
    return InvalidArguments(f"The arguments are not valid JSON ({error}): {excerpt(text)} {_describe_expected(schema)}")


def _make_object_error(value: object, text: str, schema: Mapping[str, Any]) -> InvalidArguments:
    kind = KINDS.get(type(value), "something else")
    return InvalidArguments(
        f"The arguments must be one JSON object, not {kind}: {excerpt(text)} {_describe_expected(schema)}"
    )


def _describe_expected(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    keys = ", ".join(f'"{key}": …' for key in properties) if isinstance(properties, Mapping) else ""
    return f"Write one JSON object, {{{keys}}}, and call again." if keys else "Write one JSON object and call again."


def excerpt(text: str) -> str:
    """Return the beginning of `text` for an error message."""
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "…"
