"""Reads the JSON file of MCP servers that other clients have too: `{"mcpServers": {"name": {"command": …}}}`."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from callboard.errors import AgentError, SettingsError
from callboard.skills.mcp.declaration import Confirm, ServerDeclaration

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


def _expanded(value: object) -> object:
    """A text with `${NAME}` and `${NAME:-default}` replaced from the environment; raises `ValueError`."""
    return _VARIABLE.sub(_looked_up, value) if isinstance(value, str) else value


def _looked_up(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], match[2])
    if value is None:
        raise ValueError(f"the variable {match[1]} is not set; set it, or write ${{{match[1]}:-default}}")
    return value


_Text = Annotated[str, BeforeValidator(_expanded)]


class _Entry(BaseModel):
    """One server of the file; what other clients put there besides is none of our matter."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    command: _Text = ""
    args: tuple[_Text, ...] = ()
    env: dict[str, _Text] = Field(default_factory=dict)
    cwd: _Text | None = None
    url: _Text = ""
    headers: dict[str, _Text] = Field(default_factory=dict)
    type: Literal["stdio", "http", "streamable-http", "streamableHttp"] | None = None
    confirm: Confirm = "never"
    timeout_seconds: float | None = Field(default=None, gt=0)

    def declaration(self, name: str) -> ServerDeclaration:
        """Raises `AgentError`."""
        return ServerDeclaration(
            name,
            self.command,
            self.args,
            self.env,
            Path(self.cwd).expanduser() if self.cwd else None,
            self.url,
            self.headers,
            self.confirm,
            self.timeout_seconds,
        )


def read_declarations(path: Path) -> list[ServerDeclaration]:
    """The servers that the file declares and does not disable; raises `SettingsError` with the place of each fault."""
    declarations: list[ServerDeclaration] = []
    problems: list[str] = []
    for name, given in _entries(path).items():
        if isinstance(given, Mapping) and given.get("disabled") is True:
            continue
        try:
            declarations.append(_Entry.model_validate(given).declaration(name))
        except ValidationError as error:
            problems += [_problem(name, dict(detail)) for detail in error.errors()]
        except AgentError as error:
            problems.append(f"mcpServers.{name}: {error}")
    prefixes = [one.prefix for one in declarations]
    problems += [
        f"mcpServers.{one.name}: another server's tools begin with '{one.prefix}_' too; give it another name"
        for index, one in enumerate(declarations)
        if one.prefix in prefixes[:index]
    ]
    if problems:
        raise SettingsError("\n".join(f"{path}: {problem}" for problem in problems))
    return declarations


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.expanduser().read_text("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path}: the file of MCP servers cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: the file of MCP servers is not UTF-8.") from error
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path}, line {error.lineno}, column {error.colno}: no JSON: {error.msg}.") from error
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise SettingsError(f'{path}: write the servers as {{"mcpServers": {{"name": {{"command": …}}}}}}.')
    return servers


def _problem(name: str, detail: Mapping[str, Any]) -> str:
    place = ".".join(["mcpServers", name, *map(str, detail["loc"])])
    # The value is not repeated: it may be a key.
    return f"{place}: {str(detail['msg']).removeprefix('Value error, ')}"
