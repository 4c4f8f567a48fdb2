"""Declarations of MCP servers: how each is reached, and which of its tools need the user's approval."""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from callboard.errors import AgentError
from callboard.redaction import SECRET_NAME, Redaction, is_secret, secrets_in_url

Confirm = Literal["never", "unless_read_only", "always"]
"""The tools of a server that need the user's approval. `unless_read_only` relies on the server's own hints."""

_SECRET_WORD = re.compile(rf"(?:{SECRET_NAME.pattern})\w*[\"']?\s*[=:]\s*[\"']?([^\"']+)", re.IGNORECASE)
"""A name that ends like the name of a secret, and the value. The value in `--key-column=id` is not a secret."""


@dataclass(frozen=True)
class OAuth:
    """How tokens for a server over HTTP are got.

    Attributes:
        grant_type: `authorization_code`: each user signs in. `client_credentials`: Callboard gets a token for itself.
        client_id: The id of a registered client. By default Callboard registers one.
        client_secret: The client's secret.
        scopes: The scopes to ask for. By default the server names them.
        issuer: The address of the authorization server, the only one that gets the client's secret.
    """

    grant_type: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    issuer: str = ""

    def __post_init__(self) -> None:
        # Without an issuer the MCP server would choose who gets the secret.
        if (self.client_secret or self.is_own) and not (self.client_id and self.client_secret and self.issuer):
            raise AgentError(
                "oauth with a clientSecret or client_credentials needs clientId, clientSecret and issuer, the address "
                "of the authorization server"
            )

    @property
    def is_own(self) -> bool:
        """Whether the tokens are Callboard's own, and not those of users."""
        return self.grant_type == "client_credentials"


@dataclass(frozen=True)
class ServerDeclaration:
    """One MCP server: a `command` that uses its standard streams, or a `url` with streamable HTTP.

    `McpServer` describes the fields.

    Raises:
        AgentError: There is neither or both of `command` and `url`, or the name cannot begin a tool's name.
        ValidationError: A value has another type.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Annotated[Path, AfterValidator(Path.expanduser)] | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    confirm: Confirm = "never"
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    trusted: bool = False
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    oauth: OAuth = field(default_factory=OAuth)

    def __post_init__(self) -> None:
        subject = f"The MCP server '{self.name}'"
        if not self.prefix:
            raise AgentError(f"{subject} needs a name with letters or digits: its tools' names begin with it.")
        if bool(self.command) == bool(self.url):
            raise AgentError(f"{subject} needs either a command to run or a url, and not both.")
        if self.url and not re.match(r"https?://[^/]", self.url):
            raise AgentError(f"{subject} needs a url that begins with http:// or https://.")

    @property
    def gets_tokens(self) -> bool:
        """Whether tokens are got for its requests, which then have no other `Authorization`."""
        is_set = any(name.lower() == "authorization" for name in self.headers)
        return bool(self.url) and not is_set

    @property
    def prefix(self) -> str:
        """The beginning of the names of its tools."""
        return re.sub(r"[^A-Za-z0-9_-]+", "_", self.name).strip("_")[:32]

    @property
    def identity(self) -> str:
        """The program or address of the server, without secrets. Another server may have the same name."""
        place = [self.url] if self.url else [self.command, *self.args, str(self.cwd or "")]
        return json.dumps([self.hide(part) for part in place])

    def offers(self, tool_name: str) -> bool:
        """Return whether the tool may be used, by the server's own name of it."""
        included = ("*",) if self.include_tools is None else self.include_tools
        return any(fnmatchcase(tool_name, pattern) for pattern in included) and not any(
            fnmatchcase(tool_name, pattern) for pattern in self.exclude_tools
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of variables, headers and arguments named like secrets, and passwords in URLs; longest first."""
        named = [*self.env.items(), *self.headers.items()]
        words = [*self.command.split(), *self.args]
        words += [f"{name}={value}" for name, value in pairwise(words) if name.startswith("-") and value[:1] != "-"]
        values = [value for name, value in named if SECRET_NAME.search(name)]
        # The command, because some files have the whole line there, and the error repeats it.
        values += [value for word in (self.command, *words) for value in _SECRET_WORD.findall(word)]
        values.append(self.oauth.client_secret)
        # For `Bearer <key>`, a server may repeat only the key.
        found = {part for value in values for part in (value, *value.split()) if is_secret(part)}
        found |= {part for value in (self.url, *self.args) for part in secrets_in_url(value)}
        return tuple(sorted(found, key=len, reverse=True))

    @cached_property
    def hide(self) -> Redaction:
        """Removes the secrets from a text, because they must not appear in prompts, logs or events."""
        return Redaction(self.secrets)
