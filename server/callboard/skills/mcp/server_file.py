"""Reads the JSON file of MCP servers, in the forms of other clients: `{"mcpServers": {"name": {"command": …}}}`."""

import json
import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from callboard.errors import AgentError, SettingsError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.skill import find_clash

PLACES = ("mcpServers", "servers")
"""The keys that contain the servers: in most clients, and in VS Code."""

_FIELDS = {
    "timeoutSeconds": "timeout_seconds",
    "type": "transport",
    # Gemini CLI, Windsurf, and Cline.
    "httpUrl": "url",
    "serverUrl": "url",
    "transportType": "transport",
    # Gemini CLI and Copilot.
    "includeTools": "include_tools",
    "tools": "include_tools",
    # In `oauth`.
    "grantType": "grant_type",
    "clientId": "client_id",
    "clientSecret": "client_secret",
}
"""The fields of a declaration that have other names in files."""

_TYPES = frozenset({"stdio", "http", "streamablehttp"})
_ENABLED = {"disabled": False, "enabled": True, "isActive": True}
"""The fields that turn a server off, with their values if it is on."""

_VARIABLE = re.compile(
    r"""
    \$\{ (?P<vscode> input | command | config ) : [^}]* \}
    | \$\{ (?:env:)? (?P<name> [A-Za-z_]\w* ) (?: :- (?P<default> [^}]* ) )? \}
    """,
    re.VERBOSE,
)
_WITH_VARIABLES = frozenset({"command", "args", "env", "cwd", "url", "headers", "oauth"})
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


_DECLARATION = TypeAdapter(ServerDeclaration)
_FLAGS = TypeAdapter(dict[str, bool])


@dataclass(frozen=True, slots=True)
class ServerFile:
    """The enabled servers of a file. `problems` has a line for each server that is left out."""

    servers: tuple[ServerDeclaration, ...]
    problems: tuple[str, ...]


def read_server_file(path: Path) -> ServerFile:
    """Return the servers of the file. Raises `SettingsError` if the file is unreadable or has no servers."""
    servers: list[ServerDeclaration] = []
    problems: list[str] = []
    places: dict[str, str] = {}
    for place, name, given in _list_entries(path):
        if (first := places.setdefault(name, place)) != place:
            problems.append(f"{place}: {first} has the same name already; give it another name or remove it")
            continue
        if not isinstance(given, dict):
            problems.append(f'{place}: write an object, such as {{"command": …}}')
            continue
        try:
            if _is_enabled(given):
                servers.append(_DECLARATION.validate_python(_read_entry(name, given)))
        except ValidationError as error:
            problems += [_explain(place, detail) for detail in error.errors()]
        except (AgentError, RuntimeError) as error:
            # `Path.expanduser` raises `RuntimeError` for an unknown user.
            problems.append(f"{place}: {error}")
    kept: list[ServerDeclaration] = []
    for server in servers:
        clash = find_clash(server.prefix, [other.prefix for other in servers if other is not server])
        if clash is None:
            kept.append(server)
        else:
            problems.append(
                f"{places[server.name]}: its tools could be confused with tools of another server, whose names begin "
                f"with '{clash}_'; give it another name"
            )
    return ServerFile(tuple(kept), tuple(f"{path}: {problem}" for problem in problems))


def _list_entries(path: Path) -> list[tuple[str, str, Any]]:
    """Return the path of keys, the name and the content of each entry in the file."""
    try:
        content = json.loads(_strip_comments(path.expanduser().read_text("utf-8-sig")))
    except OSError as error:
        raise SettingsError(f"{path}: the file of MCP servers cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: the file of MCP servers is not UTF-8.") from error
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}.") from error
    if not isinstance(content, dict) or not any(isinstance(content.get(key), dict) for key in PLACES):
        raise SettingsError(f'{path}: write the servers as {{"mcpServers": {{"name": {{"command": …}}}}}}.')
    return [
        (f"{key}.{name}", name, entry)
        for key in PLACES
        if isinstance(entries := content.get(key), dict)
        for name, entry in entries.items()
        if key == "servers" or _is_allowed(name, content.get("mcp"))
    ]


def _is_allowed(name: str, rules: Any) -> bool:
    """Return whether Gemini CLI's `mcp`, beside `mcpServers`, lets the server run.

    https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md
    """
    allowed, excluded = (rules.get("allowed"), rules.get("excluded")) if isinstance(rules, dict) else (None, None)
    is_listed = not isinstance(allowed, list) or name in allowed
    return is_listed and not (isinstance(excluded, list) and name in excluded)


def _strip_comments(text: str) -> str:
    """Return JSON with comments and trailing commas, which VS Code allows, replaced by spaces."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"\S", " ", match[0])

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _is_enabled(given: dict[str, Any]) -> bool:
    """Return whether the server is on. `"false"` counts as false. Raises `ValidationError` for other texts."""
    flags = {key: value for key, value in given.items() if key in _ENABLED and value is not None}
    return _FLAGS.validate_python(flags).items() <= _ENABLED.items()


def _read_entry(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the declaration's names of its fields, without null values."""
    entry = {_FIELDS.get(key, key): value for key, value in given.items() if value is not None}
    if "envFile" in entry:
        raise AgentError("its envFile is not read; write the variables into env, for example as ${NAME}")
    # Gemini CLI, and Roo Code and Windsurf.
    if excluded := [entry.pop(key) for key in ("excludeTools", "disabledTools") if key in entry]:
        invalid = [one for one in excluded if not isinstance(one, list)]
        entry["exclude_tools"] = invalid[0] if invalid else [*chain.from_iterable(excluded)]
    if isinstance(oauth := entry.get("oauth"), dict):
        entry["oauth"] = {_FIELDS.get(key, key): value for key, value in oauth.items()}
    kind = re.sub(r"[-_ ]", "", str(entry.pop("transport", "") or "stdio")).lower()
    if kind == "sse":
        raise AgentError("its transport, sse, is not supported; use its address for http, or npx mcp-remote")
    if kind not in _TYPES:
        raise AgentError("its type is unknown; use stdio or http")
    expanded = {key: _expand(value) if key in _WITH_VARIABLES else value for key, value in entry.items()}
    return {**expanded, "name": name}


def _expand(value: Any) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in the value's texts. Raises `AgentError`."""
    match value:
        case str():
            return _VARIABLE.sub(_look_up, value)
        case list():
            return [_expand(item) for item in value]
        case dict():
            return {key: _expand(item) for key, item in value.items()}
        case _:
            return value


def _look_up(variable: re.Match[str]) -> str:
    if variable["vscode"]:
        raise AgentError(f"only VS Code knows {variable[0]}; write ${{NAME}} for a variable of the environment")
    name = variable["name"]
    found = os.environ.get(name, variable["default"])
    if found is None:
        raise AgentError(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
    return found


def _explain(place: str, detail: ErrorDetails) -> str:
    names = {
        "timeout_seconds": "timeoutSeconds",
        "include_tools": "includeTools",
        "exclude_tools": "excludeTools",
    }
    path = ".".join([place, *(names.get(str(step), str(step)) for step in detail["loc"])])
    # The value is left out, because it may be a key.
    return f"{path}: {detail['msg']}"
