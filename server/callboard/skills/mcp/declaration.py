"""Declarations of MCP servers: how each is reached, and what of its tools asks the user first.

They are written in code, or in the JSON file that other clients have too:
`{"mcpServers": {"name": {"command": …}}}`.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from callboard._redaction import SECRET_NAME, Redaction, is_secret, secrets_in_url
from callboard.errors import AgentError, SettingsError

Confirm = Literal["never", "unless_read_only", "always"]
"""The tools of a server that ask the user before they run; whether one only reads is what the server says of it."""


@dataclass(frozen=True, slots=True)
class ServerDeclaration:
    """One MCP server: a `command` that speaks over its standard streams, or the `url` of a streamable HTTP endpoint.

    `env` is added to a safe few of our own variables (`PATH`, `HOME` …), and nothing else of them is
    passed on. `timeout_seconds` is what a call may take, the server's limit where it is None. `trusted`: whether the
    server is believed that a tool only reads (`readOnlyHint`), so that it may run unasked. Raises
    `AgentError` where it is neither or both, or the name cannot begin a tool's name.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    confirm: Confirm = "never"
    timeout_seconds: float | None = None
    trusted: bool = False

    def __post_init__(self) -> None:
        where = f"The MCP server '{self.name}'"
        if not self.prefix:
            raise AgentError(f"{where} needs a name with letters or digits: its tools' names begin with it.")
        if bool(self.command) == bool(self.url):
            raise AgentError(f"{where} needs either a command to run or a url, and not both.")
        if self.url and not re.match(r"https?://[^/]", self.url):
            raise AgentError(f"{where} needs a url that begins with http:// or https://.")
        if self.confirm not in get_args(Confirm):
            raise AgentError(f"{where}: confirm is {self.confirm!r}; use one of {', '.join(get_args(Confirm))}.")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise AgentError(f"{where} needs a timeout_seconds above 0, not {self.timeout_seconds}.")

    @property
    def prefix(self) -> str:
        """The beginning of its tools' names."""
        return re.sub(r"[^A-Za-z0-9_-]+", "_", self.name).strip("_")[:32]

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values given to the server that are keys by their names, and passwords in addresses; longest first."""
        named = [*self.env.items(), *self.headers.items()]
        values = [value for name, value in named if SECRET_NAME.search(name)]
        # `Bearer <key>`: a server may repeat the key alone.
        found = {part for value in values for part in (value, *value.split()) if is_secret(part)}
        found |= {part for value in (self.url, *self.args) for part in secrets_in_url(value)}
        return tuple(sorted(found, key=len, reverse=True))

    def hide(self, text: str) -> str:
        """Return `text` without the secrets, which no prompt, log or event may hold."""
        return _redaction(self.secrets)(text)


@lru_cache(maxsize=64)
def _redaction(secrets: tuple[str, ...]) -> Redaction:
    return Redaction(secrets)


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


def _expand(value: object) -> object:
    """Return a text with `${NAME}` and `${NAME:-default}` replaced from the environment; raises `ValueError`."""

    def look_up(match: re.Match[str]) -> str:
        found = os.environ.get(match[1], match[2])
        if found is None:
            raise ValueError(f"the variable {match[1]} is not set; set it, or write ${{{match[1]}:-default}}")
        return found

    return _VARIABLE.sub(look_up, value) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_expand)]


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
        """Return the declaration under that name. Raises `AgentError`."""
        folder = Path(self.cwd).expanduser() if self.cwd else None
        return ServerDeclaration(name, **self.model_dump(exclude={"type", "cwd"}), cwd=folder)


def read_declarations(path: Path) -> list[ServerDeclaration]:
    """Return the servers that the file declares and does not disable.

    Raises `SettingsError` with the place of each fault.
    """
    declarations: list[ServerDeclaration] = []
    problems: list[str] = []
    for name, given in _read_entries(path).items():
        if isinstance(given, Mapping) and given.get("disabled") is True:
            continue
        try:
            declarations.append(_Entry.model_validate(given).declaration(name))
        except ValidationError as error:
            problems += [_explain(name, dict(detail)) for detail in error.errors()]
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


def _read_entries(path: Path) -> dict[str, Any]:
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


def _explain(name: str, detail: Mapping[str, Any]) -> str:
    place = ".".join(["mcpServers", name, *map(str, detail["loc"])])
    # The value is not repeated: it may be a key.
    return f"{place}: {str(detail['msg']).removeprefix('Value error, ')}"
