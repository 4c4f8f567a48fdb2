"""Declarations of MCP servers: how each is reached, and which of its tools need the user's approval."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from callboard._redaction import SECRET_NAME, Redaction, is_secret, secrets_in_url
from callboard.errors import AgentError

Confirm = Literal["never", "unless_read_only", "always"]
"""The tools of a server that need the user's approval. `unless_read_only` relies on the server's own hints."""

Transport = Literal["http", "sse"]
"""The transport of a server with a URL: streamable HTTP, or its predecessor with server-sent events (2024-11-05)."""


@dataclass(frozen=True, slots=True)
class ServerDeclaration:
    """One MCP server: a `command` that uses its standard streams, or a `url` that uses `transport`.

    Without a `transport`, streamable HTTP is tried first, and server-sent events if that is refused.

    Attributes:
        env: Added to a few harmless variables of this process (`PATH`, `HOME` …). No other variables are passed on.
        timeout_seconds: The limit for a call; by default Callboard's own limit.
        trusted: The server's hint that a tool only reads (`readOnlyHint`) is believed, so the tool may run without
            approval.

    Raises:
        AgentError: There is neither or both of `command` and `url`, or the name cannot begin a tool's name.
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
        subject = f"The MCP server '{self.name}'"
        if not self.prefix:
            raise AgentError(f"{subject} needs a name with letters or digits: its tools' names begin with it.")
        if bool(self.command) == bool(self.url):
            raise AgentError(f"{subject} needs either a command to run or a url, and not both.")
        if self.url and not re.match(r"https?://[^/]", self.url):
            raise AgentError(f"{subject} needs a url that begins with http:// or https://.")
        if self.confirm not in get_args(Confirm):
            raise AgentError(f"{subject}: confirm is {self.confirm!r}; use one of {', '.join(get_args(Confirm))}.")
        if self.transport is not None and self.transport not in get_args(Transport):
            raise AgentError(
                f"{subject}: transport is {self.transport!r}; use one of {', '.join(get_args(Transport))}."
            )
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise AgentError(f"{subject} needs a timeout_seconds above 0, not {self.timeout_seconds}.")

    @property
    def prefix(self) -> str:
        """The beginning of the names of its tools."""
        return re.sub(r"[^A-Za-z0-9_-]+", "_", self.name).strip("_")[:32]

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of variables and headers named like secrets, and passwords in addresses; longest first."""
        named = [*self.env.items(), *self.headers.items()]
        values = [value for name, value in named if SECRET_NAME.search(name)]
        # For `Bearer <key>`, a server may repeat only the key.
        found = {part for value in values for part in (value, *value.split()) if is_secret(part)}
        found |= {part for value in (self.url, *self.args) for part in secrets_in_url(value)}
        return tuple(sorted(found, key=len, reverse=True))

    def hide(self, text: str) -> str:
        """Return `text` without the secrets, which must not appear in prompts, logs or events."""
        return _redaction(self.secrets)(text)


@lru_cache(maxsize=64)
def _redaction(secrets: tuple[str, ...]) -> Redaction:
    return Redaction(secrets)
