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

from callboard._openai.client_functions import Json, Offer, OfferedTool, read_offer
from callboard.errors import RequestError

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


def read_response_offer(
    tools: Iterable[Any], tools_of_items: Iterable[Any], tool_choice: str | Mapping[str, Any] | None
) -> Offer:
    """Return the client's offer: the field `tools` of a request, and the tools in the items of its input.

    An item replaces earlier tools with the same name, because clients repeat such items in every request. Raises
    `RequestError` for an impossible `tool_choice`, and for a namespace without a name or a list of tools.
    """
    given = [pair for tool in tools for pair in _translate(tool)]
    added = {
        _read_key(function): (function, origin) for tool in tools_of_items for function, origin in _translate(tool)
    }
    pairs = [*(pair for pair in given if _read_key(pair[0]) not in added), *added.values()]
    origins = {function["name"]: origin for function, origin in pairs if origin}
    return replace(read_offer([function for function, _ in pairs], _translate_choice(tool_choice)), origins=origins)


def _translate(tool: Any, namespace: str | None = None) -> Iterator[tuple[Any, OfferedTool | None]]:
    """Yield the functions for a tool, each with the tool that it is made from; None if the tool is unchanged."""
    match tool:
        case {"type": "namespace", "name": str(name), "tools": list(tools)} if name:
            for one in tools:
                yield from _translate(one, name)
        case {"type": "namespace"}:
            raise RequestError("tools: a namespace needs a name and a list of tools")
        case {"type": "custom", "name": str(name)}:
            function = {"name": join_name(namespace, name), "description": _describe(tool), "parameters": _INPUT}
            yield {"type": "function", **function}, OfferedTool(name, namespace, is_custom=True)
        case {"type": "function", "name": str(name)} if namespace:
            yield {**tool, "name": join_name(namespace, name)}, OfferedTool(name, namespace)
        case _:
            yield tool, None


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
