"""Finds the tool and the checked arguments of a written call, or the reason why the call cannot run."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from callboard_formats.arguments import ReadArguments, excerpt, read_arguments
from callboard_formats.fitting import fit_arguments
from callboard_formats.names import closest_name, resolve_name
from callboard_formats.syntax import InvalidArguments, Schemas, UnknownTool, WrittenCall

Schema = Any

TRUNCATED = (
    "The call was cut off before its end, and its arguments are not completed by guessing. Write the whole call again."
)


@dataclass(frozen=True, slots=True)
class RunnableCall:
    """A call that can run: `name` is the name of a known tool, and `arguments` fit the tool's schema.

    `repairs` has a short text about each difference from the text that the model wrote.
    """

    name: str
    arguments: dict[str, Any]
    repairs: tuple[str, ...] = ()


def resolve_tool_name(name: str, known: Collection[str]) -> str:
    """Return the name of the tool that `name` means; `name` itself if it means no tool."""
    resolved = resolve_name(name, known)
    return resolved.name if resolved else name


def read_call(call: WrittenCall, schemas: Schemas) -> RunnableCall:
    """Return the tool and the checked arguments of `call`. `schemas` maps each tool's name to its parameters.

    Raises `UnknownTool` if no tool has the name, and `InvalidArguments` if the call is broken or was cut off, or if its
    arguments do not fit the schema.
    """
    resolved = resolve_name(call.name, schemas)
    if resolved is None:
        raise UnknownTool(_describe_unknown_tool(call.name, schemas))
    schema = schemas[resolved.name]
    if call.broken:
        raise InvalidArguments(_describe_broken_call(call))
    if call.truncated:
        raise InvalidArguments(TRUNCATED)
    read = _read_call_arguments(call, schema)
    arguments, fitted = fit_arguments(read.arguments, schema, resolved, untyped=call.untyped)
    named = (resolved.repair,) if resolved.repair else ()
    return RunnableCall(resolved.name, arguments, (*named, *read.repairs, *fitted))


def _describe_broken_call(call: WrittenCall) -> str:
    return (
        f"The call cannot be read because a part of it is missing or misplaced: {excerpt(call.arguments)} "
        "Write the whole call again, exactly in the format that calls have."
    )


def _read_call_arguments(call: WrittenCall, schema: Schema) -> ReadArguments:
    words = call.arguments.strip()
    only = _find_only_text_argument(schema)
    # "Action Input: Lisbon" is clear only if the tool has a single string argument.
    if not call.words or only is None or not words or words[0] in "{[<" or call.truncated:
        return read_arguments(call.arguments, schema)
    # An object in the middle of other text is part of the text: `echo {"a": 1}`.
    if "{" not in words or words[0] in _QUOTES:
        try:
            return read_arguments(call.arguments, schema)
        except InvalidArguments:
            pass
    return ReadArguments({only: _remove_quotation_marks(words)}, (f"bare text taken as '{only}'",))


_QUOTES = "\"'`"
_AROUND_WORDS = ('"""', "'''", '"', "'", "`")


def _remove_quotation_marks(words: str) -> str:
    """Return bare text without the quotation marks around all of it."""
    try:
        value = json.loads(words)
    except (ValueError, RecursionError):
        if words.startswith("“") and words.endswith("”") and "”" not in words[1:-1]:
            return words[1:-1]
        mark = next((one for one in _AROUND_WORDS if words.startswith(one) and words.endswith(one)), "")
        inner = words[len(mark) : len(words) - len(mark)]
        return inner if mark and len(words) > 2 * len(mark) and mark[0] not in inner else words
    return value if isinstance(value, str) else words


def _find_only_text_argument(schema: Schema) -> str | None:
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


def _describe_unknown_tool(name: str, schemas: Schemas) -> str:
    if not schemas:
        return f"There is no tool '{name}', and no other tool either: answer in text."
    listed = f"The tools are: {', '.join(schemas)}."
    if not name:
        return f"The call names no tool. {listed}"
    closest = closest_name(name, schemas)
    guess = f" Did you mean '{closest}'?" if closest else ""
    return f"There is no tool '{name}'.{guess} {listed}"
