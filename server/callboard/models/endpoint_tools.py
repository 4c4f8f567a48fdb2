"""Learns what an endpoint refuses of the tools that it is offered: keywords of their schemas, or whole tools.

The tools check their arguments with the whole schemas.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
    r"schema|grammar|parameters|keyword|declaration|\btools[.\[]\d|(?:tool|function)s? (?:name|definition)",
    re.IGNORECASE,
)
_IS_ABOUT_OTHERS = re.compile(r"\bmessages\W{0,4}\d|response_format", re.IGNORECASE)
_IS_ABOUT_NAMES = re.compile(r"\b(?:tools|declarations)\S*\.name\b|(?:tool|function) name\b", re.IGNORECASE)
# OpenAI, Anthropic, Kimi: https://github.com/langchain-ai/langchainjs/issues/9804
_IS_ABOUT_ROOT = re.compile(r"at the top level|At path 'root'")
# Gemini lists all functions in its first tool, or one in each.
_PLACE = re.compile(r"\btools[.\[](\d+)(?:\]?\.function_?declarations\[(\d+))?", re.IGNORECASE)

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
        adapted = [{**tool, "function": self._write(tool["function"])} for tool in body["tools"]]
        tools = [tool for tool in adapted if tool["function"] not in self._refused]
        return {**body, "tools": tools} if tools else without(body, "tools", "tool_choice", "parallel_tool_calls")

    def learn(self, tools: Sequence[Mapping[str, Any]], reason: str, message: str) -> bool:
        """Learn from an error message for these tools, and return whether `adapt` now changes them.

        Keywords that it names are left out, unless they are refused at the root alone. Otherwise the tools that it
        names get a plain schema, all of them if it names none. A tool that has one already, or whose name is refused,
        is not offered.
        """
        functions = [tool["function"] for tool in tools]
        named = _find_named(functions, message)
        is_about_tools = _IS_ABOUT_TOOLS.search(message) and not _IS_ABOUT_OTHERS.search(message)
        if not is_about_tools or not (named or re.search("schema|grammar", message, re.IGNORECASE)):
            return False
        used = {keyword for one in functions for keyword in _list_keywords(one.get("parameters", {}))}
        keywords = {one for one in used - PLAIN - self._keywords if _names_keyword(one, message)}
        if keywords and not _IS_ABOUT_ROOT.search(message):
            self._keywords |= keywords
            return True
        odd = {one["name"] for one in named or functions if self._write(one, is_plain=True) != one}
        if odd and not _IS_ABOUT_NAMES.search(message):
            self._plain |= odd
            return True
        self._refused += named
        self.refused |= {one["name"]: reason for one in named}
        return bool(named)

    def _write(self, function: Function, *, is_plain: bool = False) -> Function:
        parameters = function.get("parameters", {})
        is_plain = is_plain or function["name"] in self._plain
        refused = self._keywords | (_list_keywords(parameters) - PLAIN if is_plain else set())
        if not (is_plain or refused):
            return function
        resolver = Registry[Any]().with_resource("", DRAFT202012.create_resource(parameters)).resolver()
        rewriting = _Rewriting(refused, lambda place: resolver.lookup(place).contents, is_plain=is_plain)
        root = {"properties": {}, **rewriting.rewrite(parameters), "type": "object"}
        return {**function, "parameters": root}


class _Rewriting:
    """Writes a schema without some keywords: references are written out, and alternatives become one."""

    def __init__(self, refused: set[str], look_up: LookUp, *, is_plain: bool) -> None:
        self._refused = refused
        self._look_up = look_up
        self._is_plain = is_plain
        self._targets: dict[str, dict[str, Any]] = {}

    def rewrite(self, schema: Any) -> dict[str, Any]:
        """Return the schema without the keywords."""
        given = schema if isinstance(schema, dict) else {}
        alternatives = [part for keyword in ALTERNATIVES if keyword in self._refused for part in given.get(keyword, ())]
        written = _merge([self.rewrite(part) for part in alternatives])
        for part in (self._write_target(given), self._write_own(given)):
            properties = written.get("properties", {}) | part.get("properties", {})
            written |= part | ({"properties": properties} if properties else {})
        return _make_plain(written) if self._is_plain else written

    def _write_target(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the target of a reference. A recursive one ends where it contains itself."""
        reference = schema.get("$ref")
        if "$ref" not in self._refused or not isinstance(reference, str):
            return {}
        if reference not in self._targets:
            self._targets[reference] = {}
            with suppress(Unresolvable):
                self._targets[reference] = self.rewrite(self._look_up(reference))
        return self._targets[reference]

    def _write_own(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: self._write_value(name, value) for name, value in schema.items() if name not in self._refused}
        return {"enum": [schema["const"]], **kept} if "const" in self._refused and "const" in schema else kept

    def _write_value(self, keyword: str, value: Any) -> Any:
        if keyword in _VALUES:
            return value
        if keyword in _BY_NAME and isinstance(value, dict):
            return {name: self.rewrite(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.rewrite(part) if isinstance(part, dict) else part for part in value]
        return self.rewrite(value) if isinstance(value, dict) or keyword == "items" else value


def _merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first of the alternatives, with the properties of all. `required` stays if it is the only one."""
    real = [part for part in parts if part.get("type") != "null"]
    merged: dict[str, Any] = {}
    for part in reversed(real):
        properties = merged.get("properties", {}) | part.get("properties", {})
        merged |= {**part, **({"properties": properties} if properties else {})}
    return without(merged, "required") if len(real) > 1 else merged


def _make_plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with one type, with items in a list, and with an `enum` of texts only, as Gemini demands."""
    kinds = schema.get("type") or ("object" if "properties" in schema else "string")
    kind = next((kind for kind in kinds if kind != "null"), "string") if isinstance(kinds, list) else kinds
    plain = {**schema, "type": kind}
    if kind == "array":
        plain.setdefault("items", {"type": "string"})
    if not all(isinstance(value, str) and value for value in plain.get("enum", ())):
        del plain["enum"]
    if "required" in plain:
        plain["required"] = [name for name in plain["required"] if name in plain.get("properties", {})]
    return plain


def without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields but for those of these names."""
    return {name: value for name, value in fields.items() if name not in names}


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
    places = {int(tool) + int(function or 0) for tool, function in _PLACE.findall(message)}
    return [
        function
        for place, function in enumerate(functions)
        if place in places or re.search(_name_pattern(function["name"]), message)
    ]


def _name_pattern(name: str) -> str:
    """Return a pattern for the name of a tool in quotes or beside its kind: a name such as `search` is also a word."""
    escaped = re.escape(name)
    return rf"[\"'`]{escaped}[\"'`]|\b(?:tool|function|because):? {escaped}(?![\w-])"
