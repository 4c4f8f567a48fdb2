"""The meaning of a call: the tool, its arguments as an object, what was repaired, or why it cannot be run."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from callboard_formats.arguments import ReadArguments, excerpt, read_arguments
from callboard_formats.fitting import fit_arguments
from callboard_formats.names import closest_name, resolve_name
from callboard_formats.syntax import InvalidArguments, Schemas, UnknownTool, WrittenCall

Schema = Any


@dataclass(frozen=True, slots=True)
class MeantCall:
    """A call that can be run: `name` is a known tool's, `arguments` fit its schema.

    `repairs` say in a few words each what is not as the model wrote it.
    """

    name: str
    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()


def tool_meant(name: str, known: Collection[str]) -> str:
    """Return the name of the tool that `name` means, or `name` if it means none."""
    resolved = resolve_name(name, known)
    return resolved.name if resolved else name


def understand(call: WrittenCall, schemas: Schemas) -> MeantCall:
    """Return the tool and the arguments that `call` means. `schemas` maps each tool's name to its parameters.

    Raises `UnknownTool`, with the closest name, and `InvalidArguments`, also for a call that was cut off.
    """
    resolved = resolve_name(call.name, schemas)
    if resolved is None:
        raise UnknownTool(_no_such_tool(call.name, schemas))
    schema = schemas[resolved.name]
    if call.broken:
        raise InvalidArguments(_not_as_calls_are(call))
    if call.truncated:
        _refuse_truncated()
    read = _read(call, schema)
    arguments, fitted = fit_arguments(read.arguments, schema, resolved, untyped=call.untyped)
    named = (resolved.repair,) if resolved.repair else ()
    return MeantCall(resolved.name, arguments, (*named, *read.repairs, *fitted))


def _not_as_calls_are(call: WrittenCall) -> str:
    return (
        f"The call cannot be read because a part of it is missing or misplaced: {excerpt(call.arguments)} "
        "Write the whole call again, exactly in the format that calls have."
    )


def _refuse_truncated() -> NoReturn:
    raise InvalidArguments(
        "The arguments are not valid JSON: they were cut off before their end, and a call that may change "
        "something is not completed by guessing. Write the whole call again."
    )


def _read(call: WrittenCall, schema: Schema) -> ReadArguments:
    words = call.arguments.strip()
    only = _only_text_argument(schema)
    # "Action Input: Lisbon" is clear only if the tool has a single string argument.
    if not call.words or only is None or not words or words[0] in "{[<" or call.truncated:
        return read_arguments(call.arguments, schema)
    # An object in the middle of words belongs to the words: `echo {"a": 1}`.
    if "{" not in words or words[0] in _QUOTES:
        try:
            return read_arguments(call.arguments, schema)
        except InvalidArguments:
            pass
    return ReadArguments({only: _bare(words)}, (f"bare text taken as '{only}'",))


_QUOTES = "\"'`"
_AROUND_WORDS = ('"""', "'''", '"', "'", "`")


def _bare(words: str) -> str:
    """Return bare text without quotation marks around all of it."""
    try:
        value = json.loads(words)
    except (ValueError, RecursionError):
        if words.startswith("“") and words.endswith("”") and "”" not in words[1:-1]:
            return words[1:-1]
        mark = next((one for one in _AROUND_WORDS if words.startswith(one) and words.endswith(one)), "")
        inner = words[len(mark) : len(words) - len(mark)]
        return inner if mark and len(words) > 2 * len(mark) and mark[0] not in inner else words
    return value if isinstance(value, str) else words


def _only_text_argument(schema: Schema) -> str | None:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return None
    required = [name for name in schema.get("required") or () if name in properties] or list(properties)
    if len(required) != 1:
        return None
    one = properties[required[0]]
    if not isinstance(one, dict):
        return None
    return required[0] if one.get("type") == "string" and not one.get("enum") else None


def _no_such_tool(name: str, schemas: Schemas) -> str:
    if not schemas:
        return f"There is no tool '{name}', and no other tool either: answer in text."
    listed = f"The tools are: {', '.join(schemas)}."
    if not name:
        return f"The call names no tool. {listed}"
    closest = closest_name(name, schemas)
    guess = f" Did you mean '{closest}'?" if closest else ""
    return f"There is no tool '{name}'.{guess} {listed}"
