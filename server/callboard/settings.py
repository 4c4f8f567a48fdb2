"""What the environment says: every setting, its default, and what is wrong with it.

Settings are read once, at start, from variables with the prefix `CALLBOARD_`; the commands read
`.env` of the working directory as well. `Settings()` itself reads the environment alone.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from callboard.env_file import read_env_file
from callboard.errors import SettingsError
from callboard.keys import make_api_key, read_api_key
from callboard.redaction import secrets_in_url

PREFIX = "CALLBOARD_"
ENV_FILE = Path(".env")

_HOST_NAME = re.compile(r"(\*\.)?([a-z0-9_-]+\.)*[a-z0-9_-]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

ToolFormat = Literal[
    "auto",
    "native",
    "rescue",
    "react",
    "xml",
    "hermes",
    "qwen3_coder",
    "glm",
    "mistral",
    "deepseek",
    "kimi",
    "harmony",
    "gemma",
    "llama3",
]
"""How a model's tool calls are asked for and read."""


def default_data_dir() -> Path:
    """Where data lies unless told otherwise (XDG base directory specification)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "callboard"


class Settings(BaseSettings):
    """The server's settings; field `x` is the variable `CALLBOARD_X`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address to listen on; beyond loopback `API_KEY` must be set")
    port: int = Field(default=8700, ge=0, le=65535, description="Port to listen on; 0 takes a free one")
    api_key: SecretStr | None = Field(
        default=None,
        description="Key that clients must send as `Authorization: Bearer`; unset: the one that `callboard key` made",
    )
    trusted_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Names by which clients call the server, beside `localhost`, addresses of its own and "
        "`PUBLIC_URL`'s: `callboard`, `*.example.org`, with commas; others are answered with 421",
    )
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Web pages that may call the server: origins such as `https://chat.example.org`, with commas, or "
        "`*` with a key; others are answered with 403",
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="Folder of the database and the key")
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL (SQLite, PostgreSQL); unset: SQLite in `DATA_DIR`"
    )
    model_base_url: str | None = Field(
        default=None, description="OpenAI-compatible endpoint; unset: the scripted model"
    )
    model_api_key: SecretStr | None = Field(default=None, description="Key of that endpoint")
    model: str | None = Field(default=None, description="Name of the model there; unset: the first that it lists")
    find_model: bool = Field(
        default=True, description="With no `MODEL_BASE_URL`: whether `serve` looks for a model on this machine"
    )
    tool_format: ToolFormat = Field(
        default="auto",
        description="How tools are called: `native`; `auto`: native, and a call that is the text's end, asking first "
        "unless it only reads; `rescue`: native, and any call in the text; `react`, `xml` or a family (`hermes` …): "
        "as that has it in the text",
    )
    react_models: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Models for which `auto` means `react`: name patterns such as `*llama-2*`, with commas"
    )
    max_tool_calls_per_turn: int = Field(
        default=20, ge=1, description="Executions in one turn; then the model must answer"
    )
    tool_timeout_seconds: float = Field(default=120, gt=0, description="Time a tool has, unless it sets its own")
    agents: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Your agents: Python files, folders or modules, separated by commas"
    )
    mcp_servers: Path | None = Field(
        default=None, description="JSON file of MCP servers (`mcpServers`, as other clients have it), for `assistant`"
    )
    confirm_tools: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Tools that ask the user before they run: patterns such as `request_*`, with commas",
    )
    input_timeout_seconds: float = Field(default=120, gt=0, description="How long a run waits for the user's answer")
    searxng_url: str | None = Field(default=None, description="SearXNG to search with; else DuckDuckGo and others")
    brave_api_key: SecretStr | None = Field(default=None, description="Key of Brave's search, to search with")
    tavily_api_key: SecretStr | None = Field(default=None, description="Key of Tavily's search, to search with")
    reddit_url: str | None = Field(
        default="https://www.reddit.com", description="Reddit, asked first where it is to be searched; `none`: never"
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Private hosts and networks that tools may fetch: names, addresses, `192.168.0.0/16`"
    )
    home_assistant_url: str | None = Field(default=None, description="Home Assistant's address, for `home`")
    home_assistant_token: SecretStr | None = Field(default=None, description="A long-lived access token of it")
    seerr_url: str | None = Field(default=None, description="Overseerr's or Jellyseerr's address, for `media`")
    seerr_api_key: SecretStr | None = Field(default=None, description="Its API key")
    recall: bool = Field(
        default=True,
        description="Whether what agents know of a user (memories, profile, their own notes) goes into the prompt",
    )
    embedding_model: str | None = Field(
        default=None, description="Embedding model, to find memories by meaning; unset: by words and their stems"
    )
    embedding_base_url: str | None = Field(
        default=None, description="OpenAI-compatible endpoint that has it; unset: `MODEL_BASE_URL` and its key"
    )
    embedding_api_key: SecretStr | None = Field(default=None, description="Key of that endpoint")
    detach_grace_seconds: float = Field(default=30, ge=0, description="How long a run goes on with nobody listening")
    history_tokens: int = Field(default=0, ge=0, description="Most tokens of history a model is sent; 0: no bound")
    compact_results: Literal["cited", "always", "never"] = Field(
        default="cited",
        description="Which search results later turns see without what the answer did not cite: those of which it "
        "cites something (`cited`), `always` all, or `never` any",
    )
    result_retention_days: float = Field(
        default=0, ge=0, description="How long the uncited part of search results is kept; 0: for ever"
    )
    response_retention_days: float = Field(
        default=30,
        ge=0,
        description="How long answers of `/v1/responses` are kept, to be gone on from by id; 0: for ever",
    )
    result_link_seconds: float = Field(
        default=0, ge=0, description="How long a link to a result that was cut for display is valid; 0: no links"
    )
    public_url: str | None = Field(
        default=None, description="Address of this server as browsers reach it, for those links"
    )
    max_runs: int = Field(default=100, ge=1, description="Runs at one time; more wait, then are answered with 429")
    max_user_runs: int = Field(
        default=20, ge=1, description="Runs of one user at one time; clients that name no user count as one"
    )
    run_queue_seconds: float = Field(
        default=10, ge=0, description="How long a run waits for a place before the 429; 0: not at all"
    )
    run_timeout_seconds: float = Field(default=3600, gt=0, description="The longest that a run may take")
    run_memory_mib: int = Field(
        default=512,
        ge=64,
        description="What the logs and files of runs may take in memory, in MiB, a quarter of it for one user; over it "
        "runs that have ended are forgotten before their 300 s",
    )
    max_connections: int = Field(
        default=1000,
        ge=16,
        description="Connections at one time, as far as the limit of open files allows; more are answered with 503",
    )
    max_address_connections: int = Field(
        default=500, ge=8, description="Connections of one address at one time; Open WebUI's users share one"
    )
    max_request_mib: int = Field(
        default=32, ge=1, description="Largest request body, in MiB; larger is answered with 413"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="What is logged")

    @model_validator(mode="before")
    @classmethod
    def _with_kept_key(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "api_key" in values:
            return values
        return {**values, "api_key": _kept_key(Path(values.get("data_dir") or default_data_dir()))}

    @field_validator(
        "agents", "react_models", "confirm_tools", "allowed_hosts", "trusted_hosts", "cors_origins", mode="before"
    )
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("trusted_hosts")
    @classmethod
    def _hosts(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_host_name(value) for value in values)

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_origin(value) for value in values)

    @field_validator("reddit_url", mode="after")
    @classmethod
    def _or_none(cls, value: str | None) -> str | None:
        return None if value is not None and value.strip().lower() == "none" else value

    @field_validator("public_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not _has_host(value):
            raise ValueError("must be an address with its scheme, such as https://callboard.example.org")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if self.api_key is None and not is_loopback(self.host):
            raise ValueError(
                f"CALLBOARD_HOST is {self.host}, which others can reach: run `callboard key`, which makes a key and "
                "keeps it, or set CALLBOARD_API_KEY to a long random string, and the same in the pipe's valve of that "
                "name"
            )
        if "*" in self.cors_origins and self.api_key is None:
            raise ValueError(
                "CALLBOARD_CORS_ORIGINS is *, every web page: run `callboard key`, which makes a key and keeps it, or "
                "list the origins that may call"
            )
        if self.result_link_seconds and not self.public_url:
            raise ValueError("CALLBOARD_RESULT_LINK_SECONDS is set: say in CALLBOARD_PUBLIC_URL where browsers find us")
        if self.embedding_base_url and not self.embedding_model:
            raise ValueError(
                "CALLBOARD_EMBEDDING_BASE_URL is set: name the embedding model there in CALLBOARD_EMBEDDING_MODEL"
            )
        if self.embedding_model and not (self.embedding_base_url or self.model_base_url):
            raise ValueError(
                "CALLBOARD_EMBEDDING_MODEL is set: say in CALLBOARD_EMBEDDING_BASE_URL which endpoint has it"
            )
        for service, key in (("home_assistant_url", "home_assistant_token"), ("seerr_url", "seerr_api_key")):
            if getattr(self, service) and not getattr(self, key):
                raise ValueError(f"{PREFIX}{service.upper()} is set: give its key in {PREFIX}{key.upper()}")
        return self

    @property
    def resolved_database_url(self) -> str:
        """The database in use."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data_dir.expanduser().resolve() / 'callboard.db'}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no log, event or row may hold: keys, tokens, and the passwords in addresses."""
        found: list[str] = []
        for name in type(self).model_fields:
            match getattr(self, name):
                case SecretStr() as secret:
                    found.append(secret.get_secret_value())
                case str() as text:
                    found += secrets_in_url(text)
        return tuple(found)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_environment(env_file: Path = ENV_FILE) -> dict[str, str]:
    """Return the variables of `.env` and of the environment, which wins where it says something.

    Raises `SettingsError` where there is a `.env` that cannot be read.
    """
    said = {name: value for name, value in os.environ.items() if value}
    return {**read_env_file(env_file), **said}


def load_settings(variables: Mapping[str, str] | None = None, **instead: Any) -> Settings:
    """Return the settings in `variables`, by default those of `read_environment`.

    `instead`: values of fields that are not read from there. Raises `SettingsError` with a line
    for each setting that is wrong.
    """
    given = read_environment() if variables is None else variables
    ours = {name: f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    said = {name: given[variable] for name, variable in ours.items() if given.get(variable)}
    try:
        return Settings(**{**said, **instead})
    except ValidationError as error:
        raise SettingsError("\n".join(_line(dict(detail)) for detail in error.errors())) from None


def make_server_key() -> str:
    """Return the key of the server that these settings start; the one in `DATA_DIR` is made now if there is none.

    Reads no other setting: a server that is not to start without a key can be given one. Raises `SettingsError`.
    """
    variables = read_environment()
    data_dir = variables.get(f"{PREFIX}DATA_DIR")
    return variables.get(f"{PREFIX}API_KEY") or make_api_key(Path(data_dir) if data_dir else default_data_dir())


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that no setting reads: most likely misspelt."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def _kept_key(data_dir: Path) -> SecretStr | None:
    try:
        key = read_api_key(data_dir)
    except SettingsError as error:
        raise ValueError(f"{PREFIX}API_KEY: {error}") from None
    return SecretStr(key) if key else None


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _host_name(value: str) -> str:
    name = value.lower().removeprefix("[").removesuffix("]").removesuffix(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(
                "must be names or addresses, without scheme, port and path: callboard, chat.example.org, *.example.org"
            ) from None
    return name


def _origin(value: str) -> str:
    origin = value.lower()
    if origin != "*" and not _ORIGIN.fullmatch(origin):
        raise ValueError(
            "must be origins as browsers send them, with scheme and without path: https://chat.example.org"
        )
    return origin.removesuffix(_DEFAULT_PORTS.get(origin.partition(":")[0], " "))


def _line(detail: Mapping[str, object]) -> str:
    location = detail["loc"]
    message = str(detail["msg"]).removeprefix("Value error, ")
    if isinstance(location, tuple) and location:
        # The value is not repeated: it may be a secret in the wrong variable.
        return f"{PREFIX}{str(location[0]).upper()}: {message}"
    return message
