"""Reads the JSON file of MCP servers, in the forms of other clients: `{"mcpServers": {"name": {"command": …}}}`."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from callboard.errors import AgentError, SettingsError
from callboard.skills.mcp.declaration import Confirm, ServerDeclaration, Transport
from callboard.skills.skill import find_clash

PLACES = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""The keys that contain the servers: in most clients, in VS Code's `mcp.json`, and in VS Code's settings."""

_ALIASES = {
    "httpUrl": "url",
    "serverUrl": "url",
    "environment": "env",
    "transport": "type",
    "transportType": "type",
}
"""The keys of Gemini CLI, Windsurf, OpenCode, LangChain and Cline."""

_TYPES: Mapping[str, Transport | None] = {
    "stdio": None,
    "local": None,
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
_VARIABLE = re.compile(
    r"\$\{(?:(?P<vscode>input|command|config):[^}]*|(?:env:)?(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?)\}"
)
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServerFile:
    """The enabled servers of a file. `problems` has a line for each server that is left out."""

    servers: tuple[ServerDeclaration, ...]
    problems: tuple[str, ...]


def read_server_file(path: Path) -> ServerFile:
    """Return the servers of the file. Raises `SettingsError` if the file is unreadable or has no servers."""
    servers: list[ServerDeclaration] = []
    problems: list[str] = []
    place, entries = _read_entries(path)
    for name, given in entries.items():
        if _is_disabled(given):
            continue
        try:
            servers.append(_Entry.model_validate(_rename(given)).declaration(name))
        except ValidationError as error:
            problems += [_explain(f"{place}.{name}", dict(detail)) for detail in error.errors()]
        except AgentError as error:
            problems.append(f"{place}.{name}: {error}")
    prefixes = [server.prefix for server in servers]
    clashes = {
        server.name: other
        for index, server in enumerate(servers)
        if (other := find_clash(server.prefix, [*prefixes[:index], *prefixes[index + 1 :]])) is not None
    }
    problems += [
        f"{place}.{name}: its tools could be confused with tools of another server, whose names begin with '{other}_'; "
        "give it another name"
        for name, other in clashes.items()
    ]
    kept = tuple(server for server in servers if server.name not in clashes)
    return ServerFile(kept, tuple(f"{path}: {problem}" for problem in problems))


def _read_entries(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the path of keys to the servers in the file, and the servers by name."""
    try:
        content = json.loads(_strip_comments(path.expanduser().read_text("utf-8-sig")))
    except OSError as error:
        raise SettingsError(f"{path}: the file of MCP servers cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: the file of MCP servers is not UTF-8.") from error
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}.") from error
    for keys in PLACES:
        found = content
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return ".".join(keys), found
    raise SettingsError(f'{path}: write the servers as {{"mcpServers": {{"name": {{"command": …}}}}}}.')


def _strip_comments(text: str) -> str:
    """Return JSON with comments and trailing commas, which VS Code allows, replaced by spaces."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"\S", " ", match[0])

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _is_disabled(given: object) -> bool:
    return isinstance(given, dict) and (
        given.get("disabled") is True or given.get("enabled") is False or given.get("isActive") is False
    )


def _rename(given: object) -> object:
    """Return an entry with Callboard's names of the keys, without null values."""
    if not isinstance(given, dict):
        return given
    entry = {_ALIASES.get(key, key): value for key, value in given.items() if value is not None}
    if isinstance(command := entry.get("command"), list) and command:
        # OpenCode's command includes the arguments.
        entry |= {"command": command[0], "args": [*command[1:], *entry.get("args", ())]}
    return entry


def _expand(value: object) -> object:
    """Return a text with `${NAME}` and `${NAME:-default}` replaced from the environment. Raises `ValueError`."""

    def look_up(match: re.Match[str]) -> str:
        if match["vscode"]:
            raise ValueError(f"only VS Code knows {match[0]}; write ${{NAME}} for a variable of the environment")
        name = match["name"]
        found = os.environ.get(name, match["default"])
        if found is None:
            raise ValueError(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
        return found

    return _VARIABLE.sub(look_up, value) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_expand)]


class _Entry(BaseModel):
    """One server of the file. Unknown keys of other clients are ignored."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    command: _Text = ""
    args: tuple[_Text, ...] = ()
    env: dict[str, _Text] = Field(default_factory=dict)
    cwd: _Text | None = None
    url: _Text = ""
    headers: dict[str, _Text] = Field(default_factory=dict)
    type: str = ""
    confirm: Confirm = "never"
    timeout_seconds: float | None = Field(default=None, gt=0)
    trusted: bool = False

    @field_validator("type")
    @classmethod
    def _check_type(cls, given: str) -> str:
        name = re.sub(r"[-_ ]", "", given).lower()
        if name and name not in _TYPES:
            raise ValueError("unknown type; use stdio, http or sse")
        return name

    def declaration(self, name: str) -> ServerDeclaration:
        """Return the declaration with that name. Raises `AgentError`."""
        folder = Path(self.cwd).expanduser() if self.cwd else None
        given = self.model_dump(exclude={"type", "cwd"})
        return ServerDeclaration(name, **given, cwd=folder, transport=_TYPES.get(self.type))


def _explain(place: str, detail: Mapping[str, Any]) -> str:
    # The value is left out, because it may be a key.
    return f"{'.'.join([place, *map(str, detail['loc'])])}: {str(detail['msg']).removeprefix('Value error, ')}"
