"""Declarations of MCP servers: how each is reached, and which of its tools ask the user first."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from callboard._redaction import SECRET_NAME, Redaction, is_secret, secrets_in_url
from callboard.errors import AgentError

Confirm = Literal["never", "unless_read_only", "always"]
"""The tools of a server that ask the user before they run; whether one only reads is what the server says of it."""

Transport = Literal["http", "sse"]
"""How a server speaks at its URL: streamable HTTP, or the server-sent events that came before it (2024-11-05)."""


@dataclass(frozen=True, slots=True)
class ServerDeclaration:
    """One MCP server: a `command` that speaks over its standard streams, or the `url` of one that speaks `transport`.

    Without a `transport` streamable HTTP is tried, and the older one if that is refused.

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
    transport: Transport | None = None

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
        if self.transport is not None and self.transport not in get_args(Transport):
            raise AgentError(f"{where}: transport is {self.transport!r}; use one of {', '.join(get_args(Transport))}.")
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
