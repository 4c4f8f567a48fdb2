"""Translates tools of the Responses API that are not plain functions into functions. Pure.

Codex groups tools (`namespace`), has tools that take free text (`custom`), and sends both in an item of the input
(`additional_tools`): https://github.com/openai/codex/issues/26234. Models behind chat completions know only functions.
So each tool is offered as a function, and a call of that function is returned as a call of the tool.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from callboard._http.openai.client_functions import Offer, OfferedTool, read_offer
from callboard.errors import RequestError

Json = dict[str, Any]

DEFAULT_NAMESPACE = "functions"
"""The namespace whose tools have no prefix."""

MAX_NAME_CHARS = 64
"""OpenAI's limit for the name of a function."""

_INPUT: Json = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as text."}},
    "required": ["input"],
    "additionalProperties": False,
}


class ToolRegistry:
    """The tools of one request, from its field `tools` and from the items of its input.

    An item replaces earlier tools with the same name, because clients repeat such items in every request.
    """

    def __init__(self, tools: Iterable[Any], of_items: Iterable[Any]) -> None:
        """Read the tools. Raises `RequestError` for a namespace without a name or a list of tools."""
        self._origins: dict[str, OfferedTool] = {}
        added = {self._read_key(function): function for tool in of_items for function in self._translate(tool)}
        given = [function for tool in tools for function in self._translate(tool)]
        self._functions = [*(one for one in given if self._read_key(one) not in added), *added.values()]

    def read_offer(self, tool_choice: str | Mapping[str, Any] | None) -> Offer:
        """Return the client's offer. Raises `RequestError` for an impossible `tool_choice`."""
        return replace(read_offer(self._functions, _translate_choice(tool_choice)), origins=self._origins)

    def _translate(self, tool: Any, namespace: str | None = None) -> Iterator[Any]:
        """Yield the functions for a tool; a tool of another kind unchanged."""
        match tool:
            case {"type": "namespace", "name": str(name), "tools": list(tools)} if name:
                for one in tools:
                    yield from self._translate(one, name)
            case {"type": "namespace"}:
                raise RequestError("tools: a namespace needs a name and a list of tools")
            case {"type": "custom", "name": str(name)}:
                function = join_name(namespace, name)
                self._origins[function] = OfferedTool(name, namespace, is_custom=True)
                yield {"type": "function", "name": function, "description": _describe(tool), "parameters": _INPUT}
            case {"type": "function", "name": str(name)} if namespace:
                function = join_name(namespace, name)
                self._origins[function] = OfferedTool(name, namespace)
                yield {**tool, "name": function}
            case _:
                yield tool

    @staticmethod
    def _read_key(function: Any) -> str:
        match function:
            case {"name": str(name)}:
                return name
            case _:
                return json.dumps(function, sort_keys=True)


def join_name(namespace: str | None, name: str) -> str:
    """Return the name of the function for a tool; a name that is too long ends with a hash."""
    if namespace is None or namespace == DEFAULT_NAMESPACE:
        return name
    joined = f"{namespace.removesuffix('__')}__{name}"
    if len(joined) <= MAX_NAME_CHARS:
        return joined
    digest = hashlib.sha256(joined.encode()).hexdigest()[:8]
    return f"{joined[: MAX_NAME_CHARS - 9]}_{digest}"


def write_input(text: str) -> str:
    """Return free text as the arguments of a custom tool's function."""
    return json.dumps({"input": text}, ensure_ascii=False)


def read_input(arguments: str) -> str:
    """Return the free text in the arguments, or the arguments if they have no `input`."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    match read:
        case {"input": str(text)}:
            return text
        case _:
            return arguments


def _describe(tool: Mapping[str, Any]) -> str:
    """Return the description of a custom tool, with the grammar of its input."""
    description = str(tool.get("description") or "")
    match tool.get("format"):
        case {"type": "grammar", "syntax": str(syntax), "definition": str(definition)}:
            return f"{description}\n\nThe input must follow this grammar ({syntax}):\n{definition}".strip()
        case _:
            return description


def _translate_choice(choice: str | Mapping[str, Any] | None) -> str | Mapping[str, Any] | None:
    match choice:
        case str() | None:
            return choice
        case {"type": "allowed_tools", "tools": list(tools)}:
            return {**dict(choice), "tools": [_translate_named(tool) for tool in tools]}
        case _:
            return _translate_named(choice)


def _translate_named(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    match tool:
        case {"type": "custom" | "function", "name": str(name)}:
            return {"type": "function", "name": join_name(tool.get("namespace"), name)}
        case _:
            return tool
