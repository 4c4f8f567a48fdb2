"""Learns which tools an endpoint refuses, and offers them with plain schemas, or not at all.

The tools check their arguments with the whole schemas.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, TypeVar

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

PLAIN = frozenset({"type", "description", "properties", "required", "items", "enum"})
"""The keywords that every endpoint understands."""
MAX_REFERENCES = 200
"""The references that are written out in a schema. Definitions that use the next one twice double with each step."""

_IS_ABOUT_SCHEMAS = re.compile("schema|grammar", re.IGNORECASE)
_IS_ABOUT_TOOLS = re.compile(
    r"parameters|keyword|declaration|\btools[.\[]\d|(?:tool|function)s? (?:name|definition)", re.IGNORECASE
)
_IS_ABOUT_OTHERS = re.compile(r"\bmessages\W{0,4}\d|response_format", re.IGNORECASE)
# Gemini lists all functions in its first tool, or one in each.
_PLACE = re.compile(r"\btools[.\[](\d+)(?:\]?\.function_?declarations\[(\d+))?", re.IGNORECASE)
_KEYS = re.compile(r'"([^"]+)": ')
_QUOTED = re.compile(r"(?<=[\"'`])\w+(?=[\"'`])|\$\w+")

Function = Mapping[str, Any]
T = TypeVar("T")


class EndpointTools:
    """The tools that a model of an endpoint is known to refuse."""

    def __init__(self) -> None:
        self.refused: list[tuple[Function, str]] = []
        """The tools that are refused with a plain schema too, each with the endpoint's words."""
        self._plain: set[str] = set()

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request with tools that the endpoint accepts."""
        if not (self._plain or self.refused) or "tools" not in body:
            return body
        refused = [function for function, _ in self.refused]
        functions = [tool["function"] for tool in body["tools"]]
        functions = [_make_plain(one) if one["name"] in self._plain else one for one in functions]
        tools = [{**tool, "function": one} for tool, one in zip(body["tools"], functions, strict=True)]
        tools = [tool for tool in tools if tool["function"] not in refused]
        return {**body, "tools": tools} if tools else without(body, "tools", "tool_choice", "parallel_tool_calls")

    def learn(self, tools: Sequence[Mapping[str, Any]], reason: str, message: str) -> bool:
        """Learn from an error message for these tools, and return whether `adapt` now changes them.

        The tools that it names, and those with a keyword that it names, get a plain schema; all of them if it names
        none. If they have one already, the first tool that it names is not offered.
        """
        functions = [tool["function"] for tool in tools]
        named = _find_named(functions, message)
        is_about_tools = _IS_ABOUT_SCHEMAS.search(message) or (named and _IS_ABOUT_TOOLS.search(message))
        if not is_about_tools or _IS_ABOUT_OTHERS.search(message):
            return False
        words = set(_QUOTED.findall(message)) - PLAIN
        alike = [one for one in functions if words.intersection(_KEYS.findall(json.dumps(one.get("parameters"))))]
        odd = {one["name"] for one in [*named, *alike] or functions if _make_plain(one) != one}
        self._plain = self._plain | odd
        if not odd:
            self.refused = [*self.refused, *((one, reason) for one in named[:1])]
        return bool(odd or named)


def _find_named(functions: Sequence[Function], message: str) -> list[Function]:
    """Return the functions that the message names, by their places or names, in the order of the message."""
    found = [(found.start(), int(found[1]) + int(found[2] or 0)) for found in _PLACE.finditer(message)]
    for place, function in enumerate(functions):
        name = re.escape(function["name"])
        # A name such as `search` is also a word: it counts in quotes, or beside its kind.
        pattern = rf"[\"'`]{name}[\"'`]|\b(?:tool|function|because):? {name}(?![\w-])"
        found += [(one.start(), place) for one in re.finditer(pattern, message)]
    places = dict.fromkeys(place for _, place in sorted(found, key=itemgetter(0)))
    return [functions[place] for place in places if place < len(functions)]


def _make_plain(function: Function) -> Function:
    schema = function.get("parameters", {})
    return {**function, "parameters": {"properties": {}, **_PlainSchema(schema).write(schema), "type": "object"}}


class _PlainSchema:
    """Writes a schema with `PLAIN` alone: references are written out, and alternatives become one.

    Each schema has one type, a list has items, and an `enum` has texts only, as Gemini demands. The schema of a
    client's function may be broken.
    """

    def __init__(self, root: Any) -> None:
        self._resolver = Registry[Any]().with_resource("", DRAFT202012.create_resource(root)).resolver()
        self._left = MAX_REFERENCES
        self._open: set[str] = set()
        """The references that are being written. A recursive one ends where it contains itself."""

    def write(self, given: Any) -> dict[str, Any]:
        schema = _read(given, dict)
        parts = [self.write(part) for name in ("anyOf", "oneOf", "allOf") for part in _read(schema.get(name), list)]
        parts = [part for part in parts if part["type"] != "null"]
        if len(parts) > 1:
            parts = [without(part, "required") for part in parts]
        own = {name: value for name, value in schema.items() if name in PLAIN}
        if "properties" in own:
            own["properties"] = {name: self.write(part) for name, part in _read(own["properties"], dict).items()}
        plain: dict[str, Any] = {"enum": [schema["const"]]} if "const" in schema else {}
        properties: dict[str, Any] = {}
        # The first alternative counts most.
        for part in (*reversed(parts), self._write_target(schema.get("$ref")), own):
            plain |= part
            properties |= part.get("properties", {})
        kinds = [kind for kind in [*_read(plain.get("type"), list), plain.get("type")] if isinstance(kind, str)]
        kind = "object" if properties else min(kinds, key="null".__eq__, default="string")
        items = plain.pop("items", None)
        values = _read(plain.pop("enum", None), list)
        required = [name for name in _read(plain.pop("required", None), list) if name in properties]
        return {
            **plain,
            "type": kind,
            **({"properties": properties} if "properties" in plain else {}),
            **({"items": self.write(items)} if kind == "array" else {}),
            **({"enum": values} if values and all(isinstance(value, str) and value for value in values) else {}),
            **({"required": required} if required else {}),
        }

    def _write_target(self, reference: Any) -> dict[str, Any]:
        if not isinstance(reference, str) or reference in self._open or not self._left:
            return {}
        self._left -= 1
        self._open.add(reference)
        try:
            with suppress(Unresolvable, ValueError):
                return self.write(self._resolver.lookup(reference).contents)
            return {}
        finally:
            self._open.remove(reference)


def _read(value: Any, kind: type[T]) -> T:
    return value if isinstance(value, kind) else kind()


def without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields without these names."""
    return {name: value for name, value in fields.items() if name not in names}
