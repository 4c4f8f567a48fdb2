"""Reads the text of a call's arguments as a JSON object, or raises an error that tells the model what to change."""

import ast
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from callboard_formats.json_text import ANOTHER_OBJECT
from callboard_formats.syntax import InvalidArguments

EXCERPT_CHARS = 120

MAX_REPAIR_CHARS = 32_000
"""The length limit of text that is repaired. Longer text must be valid JSON.

The tolerant readers take too long for longer text and guess too much.
"""

MAX_LITERAL_CHARS = 20_000
"""The length limit of text for Python's parser, which is not made for hostile text."""


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """Arguments, and a few words about each repair that was necessary to read them."""

    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()


def read_arguments(text: str, schema: Mapping[str, Any]) -> ReadArguments:
    """Return the object that `text` is or contains; {} for empty text.

    The first of these readings that succeeds is used:

    1. JSON.
    2. JSON with control characters in its strings.
    3. A JSON string that contains JSON.
    4. The first balanced object in the text.
    5. The same with stray backslashes doubled.
    6. The same as Python literals.
    7. The same without comments.

    `schema`, the parameters of the tool, is not checked here. It decides whether `null` means no arguments, and is
    used in error messages.

    Raises `InvalidArguments` if there is no object, if the text ends inside the object, and for NaN and Infinity, which
    are not JSON.
    """
    if not text.strip():
        return ReadArguments({})
    try:
        read = _climb(_joined(text), unwrap=True)
        if _SURROGATE.search(text):
            _refuse_halves(read.value)
    except (ValueError, RecursionError) as error:
        raise _no_json(error, text, schema) from error
    match read.value:
        case dict() as arguments:
            return ReadArguments(arguments, read.repairs)
        case None if not schema.get("required"):
            return ReadArguments({}, (*read.repairs, "null read as no arguments"))
        case other:
            raise _no_object(other, text, schema)


def parse_arguments(text: str) -> dict[str, Any]:
    """Return the JSON object that `text` is, without repairs; {} for empty text.

    Raises `InvalidArguments`, with the position of the error, for any other text.
    """
    if not text.strip():
        return {}
    try:
        value = json_value(text)
    except (ValueError, RecursionError) as error:
        raise _no_json(error, text, {}) from error
    if not isinstance(value, dict):
        raise _no_object(value, text, {})
    return value


KINDS = {
    type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list",
}  # fmt: skip
"""The names of JSON's types in error messages, by the Python types that they are read as."""


@dataclass(frozen=True, slots=True)
class _Read:
    value: Any
    repairs: tuple[str, ...] = ()


class _NoGuess(ValueError):
    """The text contains NaN, Infinity, a repeated key or two objects. Any repair would be a guess."""


def _climb(text: str, *, unwrap: bool) -> _Read:
    """Try the readings in order. Raises `ValueError` with the error of `text` as JSON."""
    try:
        read = _whole(text)
    except _NoGuess:
        raise
    except ValueError as error:
        found = _inside(text)
        if found is None and len(text) <= MAX_REPAIR_CHARS:
            # A brace or a quotation mark in a comment can make an object look unfinished.
            uncommented = _inside(_without_comments(text))
            found = uncommented and replace(uncommented, repairs=("comments left out", *uncommented.repairs))
        if found is not None:
            return found
        raise ValueError(_cut_off(text, error)) from error
    if isinstance(read.value, str) and unwrap:
        inner = _climb(read.value, unwrap=False) if read.value.strip() else _Read({})
        return _Read(inner.value, (*read.repairs, "unwrapped from a JSON string", *inner.repairs))
    return read


def _whole(text: str) -> _Read:
    """Read all of `text` as one value."""
    try:
        return _Read(json_value(text))
    except _NoGuess:
        raise
    except ValueError as error:
        try:
            return _Read(json_value(text, strict=False), ("control characters in a string allowed",))
        except _NoGuess:
            raise
        except ValueError:
            raise error from None


def _inside(text: str) -> _Read | None:
    """Read the first object in `text`; return None if no object can be read."""
    start = text.find("{")
    if start < 0 or len(text) > MAX_REPAIR_CHARS:
        return None
    end = _object_end(text, start)
    if end is None:
        return None
    around = text[:start] + text[end:]
    aside = ("text around the object left out",) if around.strip() else ()
    candidate = text[start:end]
    if not candidate.strip("{} \t\r\n") and _letters(_FENCE.sub("", around)):
        # "Use {} here" is prose. A call must not run without arguments because of it.
        return None
    second = ANOTHER_OBJECT.match(text, end)
    if second and text[second.end() : _object_end(text, second.end())] != candidate:
        raise _NoGuess("there are two objects, and it is not clear which one is meant")
    for reader in (_whole, _backslashes_doubled, _literal):
        try:
            read = reader(candidate)
        except _NoGuess:
            raise
        except ValueError:
            continue
        return _Read(read.value, (*aside, *read.repairs))
    return None


_NO_ESCAPE = re.compile(r'(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\', re.DOTALL)


def _backslashes_doubled(candidate: str) -> _Read:
    """Read JSON whose strings contain single backslashes that begin no escape, such as paths and LaTeX."""
    doubled = _NO_ESCAPE.sub(lambda found: found[1] or "\\\\", candidate)
    return _Read(_whole(doubled).value, ("backslashes doubled",))


# The comments of JSON5. Two slashes after a colon are probably part of an unquoted URL.
_COMMENT_TOKENS = re.compile(r"[\"']|(?<!:)//|/\*")


def _without_comments(text: str) -> str:
    kept: list[str] = []
    at = searched = 0
    while (token := _COMMENT_TOKENS.search(text, searched)) is not None:
        begin = token.start()
        match token[0]:
            case "//":
                end = text.find("\n", begin)
            case "/*":
                end = text.find("*/", begin)
                end = end if end < 0 else end + len("*/")
            case quote:
                closed = _string_end(text, token.end(), _IN_DOUBLE if quote == '"' else _IN_SINGLE)
                if closed is None:
                    break
                searched = closed
                continue
        kept.append(text[at:begin])
        if end < 0:
            return "".join(kept)
        at = searched = end
    return "".join([*kept, text[at:]])


_TOKENS = re.compile(r'[{}"]|\\.|(?<=[\[{,:])\s*\'', re.DOTALL)
_IN_DOUBLE = re.compile(r'\\.|"', re.DOTALL)
_IN_SINGLE = re.compile(r"\\.|'", re.DOTALL)


def _object_end(text: str, start: int) -> int | None:
    """Return the end of the object that begins at `start`; None if the text ends inside it.

    Brackets in strings do not count. Single quotation marks begin a string only at the beginning of a key or a value.
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
                closed = _string_end(text, at, _IN_DOUBLE if quote == '"' else _IN_SINGLE)
                if closed is None:
                    return None
                at = closed
    return None


def _string_end(text: str, at: int, tokens: re.Pattern[str]) -> int | None:
    for token in tokens.finditer(text, at):
        if token[0][0] != "\\":
            return token.end()
    return None


def _literal(candidate: str) -> _Read:
    value = python_value(candidate)
    if not isinstance(value, dict):
        raise ValueError("no Python dictionary")  # noqa: TRY004 - every rung fails with a ValueError
    return _Read(value, ("read as Python literals",))


def python_value(text: str) -> Any:
    """Return the JSON value of `text`, a Python literal. Raises `ValueError` for any other text."""
    if len(text) > MAX_LITERAL_CHARS:
        raise ValueError("too long for Python literals")
    try:
        with warnings.catch_warnings():
            # An unknown escape (`'\d'`) causes a warning of Python, which must not reach the server's log.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
        _refuse_duplicate_keys(tree)
        value = _as_json(ast.literal_eval(tree))
        _refuse_halves(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no Python literals") from error
    return value


def _refuse_duplicate_keys(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)] if isinstance(node, ast.Dict) else []
        if len(set(keys)) < len(keys):
            raise ValueError("a key is given twice")


def _as_json(value: Any) -> Any:
    """Return `value` with tuples as lists. Raises `ValueError` for sets, bytes and keys that are no strings."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_as_json(item) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _as_json(item) for key, item in value.items()}
        case _:
            raise ValueError(f"JSON has no {type(value).__name__}")


_FENCE = re.compile(r"```\w*")
_STRUCTURE = re.compile(r"[\s\"'`“”‘’,:;{}\[\]\\]+")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)


def _letters(text: str) -> int:
    """Return the number of characters in `text` except white space and JSON's punctuation."""
    return len(_STRUCTURE.sub("", _ESCAPE.sub("", text)))


def json_value(text: str, *, strict: bool = True) -> Any:
    """Return the JSON value of `text`. Without `strict`, its strings may contain control characters.

    Raises `ValueError` for text that is not JSON, for NaN and Infinity, for half of a surrogate pair, and for a
    repeated key. Raises `RecursionError` if the text is nested too deeply.
    """
    value = json.loads(
        text,
        strict=strict,
        parse_constant=_refuse_constant,
        parse_float=_finite,
        object_pairs_hook=_without_doubles,
    )
    if _SURROGATE.search(text):
        _refuse_halves(value)
    return value


def _without_doubles(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        counted = Counter(key for key, _ in members)
        double = next(key for key, count in counted.items() if count > 1)
        raise _NoGuess(f"'{excerpt(double)}' is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    # Python's parser accepts NaN and Infinity, but other parsers would refuse an event with them.
    raise _NoGuess(f"{name} is not JSON")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise _NoGuess(f"{excerpt(digits)} is too large")
    return number


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def _joined(text: str) -> str:
    """Return `text` with adjacent halves of surrogate pairs joined."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if _SURROGATE.search(text) else text


def _refuse_halves(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _NoGuess("it contains half of a UTF-16 surrogate pair") from None


def _cut_off(text: str, error: ValueError) -> str:
    start = text.find("{")
    if start >= 0 and _object_end(text, start) is None:
        return f"cut off before the end: {error}"
    return str(error)


def _no_json(error: Exception, text: str, schema: Mapping[str, Any]) -> InvalidArguments:
    return InvalidArguments(f"The arguments are not valid JSON ({error}): {excerpt(text)} {_advice(schema)}")


def _no_object(value: object, text: str, schema: Mapping[str, Any]) -> InvalidArguments:
    kind = KINDS.get(type(value), "something else")
    return InvalidArguments(f"The arguments must be one JSON object, not {kind}: {excerpt(text)} {_advice(schema)}")


def _advice(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    keys = ", ".join(f'"{key}": …' for key in properties) if isinstance(properties, Mapping) else ""
    return f"Write one JSON object, {{{keys}}}, and call again." if keys else "Write one JSON object and call again."


def excerpt(text: str) -> str:
    """Return the beginning of `text` for an error message."""
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "…"
