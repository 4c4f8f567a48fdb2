"""Settings from environment variables with the prefix `CALLBOARD_`, read once, at the start.

`Settings` are the server's. A skill with settings declares them in its own module, as `SkillSettings`. The commands
also read `.env` in the working directory; `Settings()` itself reads only the environment.
"""

import io
import ipaddress
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import (
    AnyHttpUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from callboard._keys import make_api_key, read_api_key
from callboard.errors import NotSetUp, SettingsError
from callboard.redaction import secrets_in_url

PREFIX = "CALLBOARD_"
MIN_SECRET_BYTES = 32
"""The length of an HS256 signature; a key for it has at least this length (RFC 7518, 3.2)."""
ENV_FILE = Path(".env")

_HOST_NAME = re.compile(r"(\*\.)?([a-z0-9_-]+\.)*[a-z0-9_-]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_LOOPBACK_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
"""By the address that listens on all interfaces: the one to connect to on this machine."""

_ACCESS = re.compile(r"[^=]+=(role|group):.+")
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
    "deepseek_v3_2",
    "deepseek_v4",
    "deepseek_v4_1",
    "kimi",
    "kimi_k3",
    "gemma",
    "llama3",
    "llama4",
    "hunyuan_3",
    "hunyuan_a13b",
    "minimax_m2",
    "lfm2",
    "granite",
    "phi4_mini",
    "command",
    "olmo3",
    "nemotron_nano",
    "seed_oss",
    "step3",
    "dots",
    "minicpm",
    "gigachat3",
    "apertus",
    "internlm2",
    "longcat",
    "k2_horizon",
    "solar_open",
    "solar_open_2",
    "muse_glimmer",
    "inkling",
    "plamo_3",
    "iquest",
    "cwm",
    "rwkv",
    "minimax_m3",
    "harmony",
]
"""The format in which a model is instructed to call tools, and in which its calls are read."""


TextCalls = Literal["run", "ask", "refuse"]
"""The treatment of a call that a model wrote into its text instead of calling natively, of a tool that may write."""


def split_list(value: object) -> object:
    """Split a string at commas; return any other value unchanged."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)]
"""A list, in a variable separated by commas."""


def default_data_dir() -> Path:
    """Return the default of `data_dir` (XDG base directory specification)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "callboard"


class Settings(BaseSettings):
    """The server. Field `x` is read from the variable `CALLBOARD_X`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; except for loopback, `API_KEY` must be set"
    )
    port: int = Field(default=8700, ge=0, le=65535, description="Port to listen on; 0: a free one")
    api_key: SecretStr | None = Field(
        default=None,
        description="Key that clients must send as `Authorization: Bearer`; unset: the one that `callboard key` made",
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="File of named keys, hashed, which `callboard key --add` writes; read again when it changes",
    )
    open_webui_jwt_secret: SecretStr | None = Field(
        default=None,
        description="Open WebUI's `FORWARD_USER_INFO_HEADER_JWT_SECRET`, of 32 characters or more: a request that "
        "names a user then needs Open WebUI's signature; unset: a client with a key may name any user",
    )
    agent_access: Words = Field(
        default=(),
        description="Who may use which agents: `coder=group:Developers`, `home*=role:admin`, with commas. If several "
        "entries name an agent, one of them is enough; every user may use an agent without an entry",
    )
    trusted_hosts: Words = Field(
        default=(),
        description="Host names of the server in requests, besides `localhost`, its own addresses and "
        "`PUBLIC_URL`'s: `callboard`, `*.example.org`, with commas; others are answered with 421",
    )
    cors_origins: Words = Field(
        default=(),
        description="Web pages that may call the server: origins such as `https://chat.example.org`, with commas, or "
        "`*` with a key; others are answered with 403",
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="Folder of the database and the key")
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL (SQLite, PostgreSQL); unset: SQLite in `DATA_DIR`"
    )
    redis_url: str | None = Field(
        default=None,
        description="Redis through which the servers of one PostgreSQL notify each other: `redis://host:6379/0`; "
        "unset: through the database",
    )
    model_base_url: str | None = Field(
        default=None, description="OpenAI-compatible endpoint; unset: the scripted model"
    )
    model_api_key: SecretStr | None = Field(default=None, description="Key of that endpoint")
    model: str | None = Field(default=None, description="Name of the model there; unset: the first in its list")
    find_model: bool = Field(
        default=True, description="Whether `serve` looks for a model on this machine if `MODEL_BASE_URL` is unset"
    )
    tool_format: ToolFormat = Field(
        default="auto",
        description="How tools are called: `native`; `auto`: native, and a call at the end of the text, after asking "
        "the user unless its tool only reads; `rescue`: native, and any call in the text; `react`, `xml` or a family "
        "(`hermes` …): in the text, in the syntax of that name",
    )
    text_calls: TextCalls = Field(
        default="ask",
        description="If a model writes a call into its text instead of calling natively, and the tool does not only "
        "read: `ask`: the call runs after the user has agreed, and never over the OpenAI routes, where users cannot be "
        "asked; `run`: it runs like a native call; `refuse`: it never runs",
    )
    react_models: Words = Field(
        default=(), description="Models for which `auto` means `react`: name patterns such as `*llama-2*`, with commas"
    )
    max_tool_calls_per_turn: int = Field(
        default=20, ge=1, description="Maximum number of tool calls in a turn; then the model must answer"
    )
    tool_timeout_seconds: float = Field(default=120, gt=0, description="Timeout of a tool, unless it sets its own")
    agents: Words = Field(default=(), description="Your agents: Python files, folders or modules, separated by commas")
    confirm_tools: Words = Field(
        default=(),
        description="Tools that need the user's approval to run: patterns such as `request_*`, with commas",
    )
    forbid_always: Words = Field(
        default=(),
        description="Tools that no user can allow always in a chat: patterns such as `send_*`, with commas",
    )
    input_timeout_seconds: float = Field(default=120, gt=0, description="How long a run waits for the user's answer")
    recall: bool = Field(
        default=True,
        description="Whether the prompt has the agents' memories of the user, the profile and the agents' own notes",
    )
    drain_seconds: float = Field(
        default=30,
        ge=0,
        description="How long runs may go on after SIGTERM; then they are released to the next server, or ended if "
        "they are not stored",
    )
    detach_grace_seconds: float = Field(
        default=120,
        ge=0,
        description="How long a run goes on without a listener; longer than a restart of Open WebUI",
    )
    keep_run_seconds: float = Field(
        default=300, ge=0, description="How long the events of an ended run can still be read"
    )
    history_tokens: int = Field(default=0, ge=0, description="Maximum tokens of history for a model; 0: no limit")
    compact_results: Literal["cited", "always", "never"] = Field(
        default="cited",
        description="Which search results are reduced in later turns to the sources that the answer cites: results "
        "with at least one cited source (`cited`), all (`always`) or none (`never`)",
    )
    retention_days: float = Field(
        default=0, ge=0, description="How long a chat is kept after its last turn; unset or 0: for ever"
    )
    result_retention_days: float = Field(
        default=0, ge=0, description="How long the uncited part of search results is kept; 0: for ever"
    )
    response_retention_days: float = Field(
        default=30,
        ge=0,
        description="How long answers of `/v1/responses` are kept, so that requests can continue them; 0: for ever",
    )
    result_link_seconds: float = Field(
        default=0, ge=0, description="How long a link to the whole of a truncated result is valid; 0: no links"
    )
    public_url: str | None = Field(
        default=None,
        description="Address of this server for browsers: in those links, and where they return after a sign-in at an "
        "MCP server (unset: `http://` with `HOST` and `PORT`)",
    )
    token_key: SecretStr | None = Field(
        default=None,
        description="Key that encrypts the users' tokens for MCP servers, at least 32 characters, the same for all "
        "servers of a PostgreSQL, which need it; unset: a key in the file `token_key` in `DATA_DIR`",
    )
    max_runs: int = Field(
        default=100, ge=1, description="Maximum number of open runs; more wait, then are answered with 429"
    )
    max_user_runs: int = Field(
        default=20,
        ge=1,
        description="Maximum number of open runs of one user, at all servers of the database; at each server, all "
        "requests without a user count as one user",
    )
    max_user_calls_per_day: int = Field(
        default=0, ge=0, description="Maximum number of tool calls of one user a day, from 00:00 UTC; 0: no limit"
    )
    max_user_tokens_per_day: int = Field(
        default=0, ge=0, description="Maximum number of tokens of one user a day, sent and received; 0: no limit"
    )
    run_queue_seconds: float = Field(
        default=10, ge=0, description="How long a run waits for a slot before the 429; 0: it does not wait"
    )
    run_timeout_seconds: float = Field(default=3600, gt=0, description="Maximum duration of a run")
    lease_seconds: float = Field(
        default=10,
        ge=0.5,
        description="How long a server may be silent before another server on the same PostgreSQL takes over its runs",
    )
    run_memory_mib: int = Field(
        default=512,
        ge=64,
        description="Memory for the events, texts and files of runs, in MiB, a quarter of it for one user; over it, "
        "ended runs are dropped before `KEEP_RUN_SECONDS`",
    )
    max_connections: int = Field(
        default=65_536,
        ge=16,
        description="Maximum number of connections, as far as the limit of open files allows; requests over it are "
        "answered with 503. Idle connections count too: limit the connections of one address at a proxy",
    )
    max_request_mib: int = Field(
        default=32, ge=1, description="Largest request body, in MiB; larger is answered with 413"
    )
    metrics: bool = Field(default=True, description="Whether `GET /metrics` has metrics for Prometheus")
    metrics_key: SecretStr | None = Field(
        default=None,
        description="Key for `GET /metrics` only, for a Prometheus that must not have `API_KEY`",
    )
    inspect: bool = Field(
        default=True, description="Whether `/inspect` shows open and ended runs and the requests to models"
    )
    inspect_keys: Words = Field(
        default=(),
        description="Names of the keys that open `/inspect` besides the key without a name, with commas; unset: every "
        "key, or with `OPEN_WEBUI_JWT_SECRET` only the key without a name",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: dict[str, Any]) -> dict[str, Any]:
        # Only for arguments of `Settings(…)`; `unknown_settings` finds unknown names in the environment.
        for name in values:
            if name not in cls.model_fields:
                raise SettingsError(f"There is no setting {name}: {_suggest_setting(name)}")
        return values

    @model_validator(mode="before")
    @classmethod
    def _add_stored_key(cls, values: dict[str, Any]) -> dict[str, Any]:
        if "api_key" in values:
            return values
        try:
            return {**values, "api_key": read_api_key(Path(values.get("data_dir") or default_data_dir()))}
        except SettingsError as error:
            raise ValueError(f"{PREFIX}API_KEY: {error}") from None

    @field_validator("trusted_hosts")
    @classmethod
    def _read_hosts(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_read_host(value) for value in values)

    @field_validator("open_webui_jwt_secret", "token_key")
    @classmethod
    def _check_secret(cls, value: SecretStr | None) -> SecretStr | None:
        # Anyone with a token, or with the database, could guess a shorter secret.
        if value is not None and len(value.get_secret_value().encode()) < MIN_SECRET_BYTES:
            raise ValueError(f"must have at least {MIN_SECRET_BYTES} characters: `openssl rand -hex 32` makes one")
        return value

    @field_validator("agent_access")
    @classmethod
    def _check_access(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if not _ACCESS.fullmatch(value):
                raise ValueError("must be entries such as coder=group:Developers or coder=role:admin, with commas")
        return values

    @field_validator("cors_origins")
    @classmethod
    def _read_origins(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_read_origin(value) for value in values)

    @field_validator("model_base_url", "public_url")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                AnyHttpUrl(value)
        except ValidationError:
            example = "http://localhost:11434/v1 or https://callboard.example.org"
            raise ValueError(f"must be an address with its scheme, such as {example}") from None
        return value

    @model_validator(mode="after")
    def _check_together(self) -> "Settings":
        if not self.has_key and not is_loopback(self.host):
            raise ValueError(
                f"CALLBOARD_HOST is {self.host}, which other machines can reach: run `callboard key`, which makes a "
                "key and stores it, or set CALLBOARD_API_KEY to a long random string, and the pipe's valve of that "
                "name to the same"
            )
        if "*" in self.cors_origins and not self.has_key:
            raise ValueError(
                "CALLBOARD_CORS_ORIGINS is *, every web page: run `callboard key`, which makes a key and stores it, or "
                "list the origins that may call"
            )
        if self.result_link_seconds and not self.public_url:
            raise ValueError(
                "CALLBOARD_RESULT_LINK_SECONDS is set: set CALLBOARD_PUBLIC_URL to the server's address for browsers"
            )
        return self

    @property
    def has_key(self) -> bool:
        """Whether clients must send a key."""
        return self.api_key is not None or self.api_keys_file is not None

    @property
    def own_url(self) -> str | None:
        """The server's URL on its own machine; None if the port is not known yet."""
        if self.port == 0:
            return None
        host = _LOOPBACK_ADDRESSES.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def resolved_database_url(self) -> str:
        """The SQLAlchemy URL of the database."""
        return self.database_url or f"sqlite:///{self.data_dir.expanduser().resolve() / 'callboard.db'}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret values: keys, tokens, and the passwords in URLs."""
        found: list[str] = []
        for name in type(self).model_fields:
            match getattr(self, name):
                case SecretStr() as secret:
                    found.append(secret.get_secret_value())
                case str() as text:
                    found += secrets_in_url(text)
        return tuple(found)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_environment() -> dict[str, str]:
    """Return the variables of `.env` and of the environment; those of the environment come first, unless empty.

    Raises `SettingsError` if `.env` exists and cannot be read.
    """
    set_here = {name: value for name, value in os.environ.items() if value}
    return {**read_env_file(ENV_FILE), **set_here}


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables that the file sets; none if there is no such file.

    A folder is ignored, because some virtual environments are named `.env`. Raises `SettingsError` if the file cannot
    be read, with a line for each line of the file that is wrong.
    """
    # A named pipe is read as well, because password managers offer one. It can be read only once.
    if not path.exists() or path.is_dir():
        return {}
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8: save it as UTF-8, or move it away.") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}): allow it, or move it away.") from error
    wrong = [binding.original.line for binding in parse_stream(io.StringIO(text)) if binding.error]
    if wrong:
        # The line is not shown, because it may contain a secret.
        raise SettingsError(
            "\n".join(
                f"{path}, line {line}: write NAME=VALUE, in quotes that are closed, or # before it." for line in wrong
            )
        )
    found = dotenv_values(stream=io.StringIO(text))
    return {name: value for name, value in found.items() if value is not None}


def load_settings(variables: Mapping[str, str] | None = None) -> Settings:
    """Return the settings in `variables`, by default those of `read_environment`.

    Raises `SettingsError` with a line for each wrong setting.
    """
    return _load(Settings, variables)


class SkillSettings(BaseModel):
    """Settings of a skill. Field `x` is read from the variable `CALLBOARD_X`.

    The docstring's first line is the title of their table in the reference. The commands know the settings of every
    subclass whose module is imported. A field with the name of a server's setting reads that setting.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, protected_namespaces=())

    @classmethod
    def load(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Return the settings in `variables`, by default those of `read_environment`.

        Raises `SettingsError` with a line for each wrong setting.
        """
        return _load(cls, variables)

    def not_set_up(self) -> NotSetUp:
        """Return an error that names the settings that are not set."""
        unset = [name for name in type(self).model_fields if getattr(self, name) is None]
        return NotSetUp(f"needs {', '.join(map(variable_of, unset))}")


S = TypeVar("S", bound=BaseModel)


def _load(kind: type[S], variables: Mapping[str, str] | None) -> S:
    given = read_environment() if variables is None else variables
    found = {name: value for name in kind.model_fields if (value := given.get(variable_of(name)))}
    try:
        return kind(**found)
    except ValidationError as error:
        raise SettingsError("\n".join(_format_error(dict(detail)) for detail in error.errors())) from None


def variable_of(setting: str) -> str:
    """Return the name of the environment variable of a field."""
    return PREFIX + setting.upper()


def settings_classes() -> tuple[type[BaseModel], ...]:
    """Return the classes of the server's settings and of every imported skill's."""
    return (Settings, *SkillSettings.__subclasses__())


def known_settings() -> dict[str, FieldInfo]:
    """Return the fields of all settings by name."""
    known: dict[str, FieldInfo] = {}
    for kind in settings_classes():
        for name, field in kind.model_fields.items():
            known.setdefault(name, field)
    return known


def unknown_settings(environ: Mapping[str, str]) -> list[str]:
    """Return the variables with the prefix that no setting has; they are probably misspelt."""
    known = {variable_of(name) for name in known_settings()}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def secrets_in(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secret values among the variables of settings, also if a value is wrong for its setting."""
    found: list[str] = []
    for name, field in known_settings().items():
        value = variables.get(variable_of(name), "")
        if value and SecretStr in (field.annotation, *get_args(field.annotation)):
            found.append(value)
        elif value:
            found += secrets_in_url(value)
    return tuple(found)


def _suggest_setting(name: str) -> str:
    """Return advice about a name that no setting of the server has."""
    if name in known_settings():
        return "it is a setting of a skill, so give it to the skill."
    close = get_close_matches(name.lower(), Settings.model_fields, n=1)
    return f"did you mean {close[0]}?" if close else "docs/reference/settings.md lists them all."


def make_server_key() -> str:
    """Return the server's key: `API_KEY`, or the key in `DATA_DIR`, which is made if there is none.

    Other settings are not read, because they may be invalid until there is a key. Raises `SettingsError`.
    """
    variables = read_environment()
    data_dir = variables.get(f"{PREFIX}DATA_DIR")
    return variables.get(f"{PREFIX}API_KEY") or make_api_key(Path(data_dir) if data_dir else default_data_dir())


def read_keys_file() -> Path:
    """Return the server's file of named keys, without reading other settings; raises `SettingsError` if none is set."""
    file = read_environment().get(f"{PREFIX}API_KEYS_FILE")
    if not file:
        raise SettingsError("CALLBOARD_API_KEYS_FILE is not set: set it to a file for the named keys")
    return Path(file).expanduser()


def _read_host(value: str) -> str:
    name = value.lower().removeprefix("[").removesuffix("]").removesuffix(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(
                "must be names or addresses, without scheme, port and path: callboard, chat.example.org, *.example.org"
            ) from None
    return name


def _read_origin(value: str) -> str:
    origin = value.lower()
    if origin != "*" and not _ORIGIN.fullmatch(origin):
        raise ValueError(
            "must be origins as browsers send them, with scheme and without path: https://chat.example.org"
        )
    return origin.removesuffix(_DEFAULT_PORTS.get(origin.partition(":")[0], " "))


def _format_error(detail: Mapping[str, object]) -> str:
    location = detail["loc"]
    message = str(detail["msg"]).removeprefix("Value error, ")
    if isinstance(location, tuple) and location:
        # The value is not shown, because it may be a secret in the wrong variable.
        return f"{variable_of(str(location[0]))}: {message}"
    return message
