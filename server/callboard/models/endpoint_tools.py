"""Learns what an endpoint refuses of the tools that it is offered: keywords of their schemas, or whole tools.

The tools check their arguments with the whole schemas.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

ALTERNATIVES = ("anyOf", "oneOf", "allOf")
"""The keywords of JSON Schema that list alternatives or parts of a schema."""
PLAIN = frozenset({"type", "description", "properties", "required", "items", "enum"})
"""The keywords that every endpoint understands."""
_BY_NAME = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""The keywords whose values are schemas by names."""
_VALUES = frozenset({"enum", "const", "default", "examples"})
"""The keywords whose values are values of arguments."""

_IS_ABOUT_TOOLS = re.compile(
    r"schema|parameters|keyword|declaration|\btools[.\[]\d|(?:tool|function)s? (?:name|definition)", re.IGNORECASE
)
_IS_ABOUT_OTHERS = re.compile(r"\bmessages[.\[]\d|response_format", re.IGNORECASE)
_IS_ABOUT_NAMES = re.compile(r"\b(?:tools|declarations)\S*\.name\b|(?:tool|function) name\b", re.IGNORECASE)
_PLACE = re.compile(r"(?:\btools|declarations)[.\[](\d+)(?!\S*declarations)")

Function = Mapping[str, Any]
LookUp = Callable[[str], Any]


class EndpointTools:
    """What a model of an endpoint is known to refuse of tools."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """The endpoint's words about each tool that it refuses also with a plain schema."""
        self._refused: list[Function] = []
        self._keywords: set[str] = set()
        self._plain: set[str] = set()

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request with tools that the endpoint accepts."""
        if not (self._keywords or self._plain or self._refused) or "tools" not in body:
            return body
        adapted = [{**tool, "function": self._adapt_function(tool["function"])} for tool in body["tools"]]
        tools = [tool for tool in adapted if tool["function"] not in self._refused]
        return {**body, "tools": tools} if tools else without(body, "tools", "tool_choice", "parallel_tool_calls")

    def learn(self, tools: Sequence[Mapping[str, Any]], reason: str, message: str) -> bool:
        """Learn from an error message for these tools, and return whether `adapt` now changes them.

        Keywords that it names are left out. Otherwise the tools that it names get a plain schema, all of them if it
        names none. A tool that has one already, or whose name is refused, is not offered.
        """
        functions = [tool["function"] for tool in tools]
        named = _find_named(functions, message)
        is_about_tools = _IS_ABOUT_TOOLS.search(message) and not _IS_ABOUT_OTHERS.search(message)
        if not is_about_tools or not (named or "schema" in message.lower()):
            return False
        used = {keyword for one in functions for keyword in _list_keywords(one.get("parameters", {}))}
        keywords = {one for one in used - PLAIN - self._keywords if _names_keyword(one, message)}
        if keywords:
            self._keywords |= keywords
            return True
        names = {one["name"] for one in named or functions} - self._plain
        if names and not _IS_ABOUT_NAMES.search(message):
            self._plain |= names
            return True
        self._refused += named
        self.refused |= {one["name"]: reason for one in named}
        return bool(named)

    def _adapt_function(self, function: Function) -> Function:
        parameters = function.get("parameters", {})
        keywords = self._keywords
        is_plain = function["name"] in self._plain
        if is_plain:
            keywords = keywords | (_list_keywords(parameters) - PLAIN)
        if not keywords:
            return function
        resolver = Registry[Any]().with_resource("", DRAFT202012.create_resource(parameters)).resolver()
        root = _Rewriting(keywords, lambda place: resolver.lookup(place).contents, is_plain=is_plain).rewrite(
            parameters
        )
        return {**function, "parameters": {**root, "type": "object", "properties": root.get("properties", {})}}


class _Rewriting:
    """Writes schemas without some keywords: references are written out, and alternatives become one."""

    def __init__(self, keywords: set[str], look_up: LookUp, *, is_plain: bool) -> None:
        self._keywords = keywords
        self._look_up = look_up
        self._is_plain = is_plain

    def rewrite(self, schema: Any, seen: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the schema without the keywords; `seen` are the references around it, as they may be recursive."""
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if "$ref" in self._keywords and isinstance(reference, str):
            schema = without(schema, "$ref") if reference in seen else resolve(schema, self._look_up)
            seen = (*seen, reference)
        parts = [part for keyword in ALTERNATIVES if keyword in self._keywords for part in schema.get(keyword, ())]
        merged = _merge([self.rewrite(part, seen) for part in parts])
        properties = {**merged.get("properties", {})}
        written: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict):
                properties |= {name: self.rewrite(part, seen) for name, part in value.items()}
            elif keyword == "const" and keyword in self._keywords:
                written["enum"] = [value]
            elif keyword not in self._keywords:
                written[keyword] = self._rewrite_value(keyword, value, seen)
        written = {**merged, **written} | ({"properties": properties} if properties else {})
        if self._is_plain:
            if isinstance(kinds := written.get("type"), list):
                written["type"] = next((kind for kind in kinds if kind != "null"), "string")
            if written.get("type") == "array":
                written.setdefault("items", {})
        return written

    def _rewrite_value(self, keyword: str, value: Any, seen: tuple[str, ...]) -> Any:
        if keyword in ("items", "not", "additionalProperties") and isinstance(value, dict):
            return self.rewrite(value, seen)
        if keyword in _BY_NAME and isinstance(value, dict):
            return {name: self.rewrite(part, seen) for name, part in value.items()}
        if keyword in ALTERNATIVES and isinstance(value, list):
            return [self.rewrite(part, seen) for part in value]
        return value


def without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields but for those of these names."""
    return {name: value for name, value in fields.items() if name not in names}


def resolve(schema: Any, look_up: LookUp) -> dict[str, Any]:
    """Return the schema with its target's keywords if it is a reference; empty for `True`."""
    if not isinstance(schema, dict):
        return {}
    beside = without(schema, "$ref")
    try:
        return resolve(look_up(schema["$ref"]), look_up) | beside if "$ref" in schema else schema
    except (Unresolvable, RecursionError):
        return beside


def _merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first of the alternatives, with the properties of all. `required` stays if it is the only one."""
    real = [part for part in parts if part.get("type") != "null"]
    merged: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for part in reversed(real):
        merged |= part
        properties |= part.get("properties", {})
    if len(real) > 1:
        merged = without(merged, "required")
    return merged | ({"properties": properties} if properties else {})


def _list_keywords(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {keyword for part in schema for keyword in _list_keywords(part)}
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, dict):
            found |= _list_keywords(list(value.values()))
        elif keyword not in _VALUES:
            found |= _list_keywords(value)
    return found


def _names_keyword(keyword: str, message: str) -> bool:
    """Return whether the message names the keyword. One that is a word, such as `format`, counts only in quotes."""
    quote = r"[\"'`]" if keyword.isalpha() and keyword.islower() else ""
    return re.search(rf"(?<!\w){quote}{re.escape(keyword)}{quote}(?!\w)", message) is not None


def _find_named(functions: Sequence[Function], message: str) -> list[Function]:
    """Return the functions that the message names, by their places or names."""
    places = {int(place) for place in _PLACE.findall(message)}
    return [
        function
        for place, function in enumerate(functions)
        if place in places or re.search(_name_pattern(function["name"]), message)
    ]


def _name_pattern(name: str) -> str:
    """Return a pattern for the name of a tool in quotes or beside its kind: a name such as `search` is also a word."""
    escaped = re.escape(name)
    return rf"[\"'`]{escaped}[\"'`]|\b(?:tool|function|because):? {escaped}(?![\w-])"
