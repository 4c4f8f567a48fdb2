"""`callboard serve`: runs the server with the settings and agents of the environment."""

import argparse
import asyncio
import gc
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

import structlog
import uvicorn
from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE

import callboard.agents.builtin  # noqa: F401 - registers the settings of skills
from callboard._application.application import Application, Callboard
from callboard._logging import set_up_logging
from callboard._tracing.export import Export, begin_export, find_secrets
from callboard._version import __version__
from callboard.agents.loading import LoadedAgents, load_all_agents
from callboard.agents.registry import AgentAccess
from callboard.errors import CallboardError, SettingsError
from callboard.http.auth import authenticate_by
from callboard.http.listening import compute_connection_limit, listen, raise_descriptor_limit
from callboard.models import ChatModel, OpenAICompatible, ScriptedModel
from callboard.models.local_endpoints import LOCAL_ENDPOINTS, LocalEndpoint, find_local_model
from callboard.redaction import Redaction
from callboard.settings import Settings, load_settings, read_environment, secrets_in, unknown_settings

MAX_HEADER_BYTES = 16 * 1024
"""The maximum size of a request's headers."""

KEEP_ALIVE_SECONDS = 5
"""The time that a connection stays open after a response, to wait for another request."""

SHUTDOWN_SECONDS = 10
"""The time that open connections have to end after all runs have ended or been released."""

_log = structlog.get_logger(__name__)


def run(_options: argparse.Namespace) -> int:
    """Run the server until a signal stops it."""
    variables = read_environment()
    settings = load_settings(variables)
    with bind(settings) as listener:
        host, port = listener.getsockname()[:2]
        app = _build_app(settings, variables, url=f"http://{host}:{port}")
        asyncio.run(_run_server(app, settings, listener))
    return 0


def make_app() -> Application:
    """Return the application of `callboard serve` for worker processes: `uvicorn --factory callboard:make_app`.

    Wrong settings end the process. SQLite is refused, because only one process can use it. A server without a key is
    refused, because this function does not know who can reach the port, and because a worker needs the key to check
    the links of the others.
    """
    try:
        variables = read_environment()
        settings = load_settings(variables)
        if settings.resolved_database_url.startswith("sqlite"):
            raise SettingsError("CALLBOARD_DATABASE_URL: workers need PostgreSQL: set it to postgresql+asyncpg://…")
        if settings.api_key is None:
            raise SettingsError("CALLBOARD_API_KEY: workers need a key: run `callboard key`, which makes one")
        structlog.contextvars.bind_contextvars(pid=os.getpid())
        # In another thread, because uvicorn's event loop runs in this one, and agent files may call `asyncio.run`.
        with ThreadPoolExecutor(1) as thread:
            app = thread.submit(_build_app, settings, variables).result()
    except CallboardError as error:
        print(f"callboard: {error}", file=sys.stderr)
        # With any other exit code, uvicorn's supervisor would start the worker again.
        sys.exit(STARTUP_FAILURE)
    raise_descriptor_limit()
    return app


def _load_agents(settings: Settings, variables: Mapping[str, str]) -> LoadedAgents:
    """Return the built-in agents and the user's agents. Log the agents that are left out, and misspelt settings."""
    loaded = load_all_agents(settings, variables)
    for agent_id, reason in loaded.registry.unavailable.items():
        _log.info("agent_left_out", agent=agent_id, reason=reason)
    for agent_id, lines in loaded.lacks.items():
        _log.info("agent_lacks", agent=agent_id, lacks=lines)
    for problem in loaded.problems:
        _log.error("agent_left_out", reason=str(problem))
    # After the agents are loaded, because agent files may declare their own settings.
    for name in unknown_settings(variables):
        _log.warning("unknown_setting", name=name, hint="docs/reference/settings.md lists the settings")
    for name in AgentAccess.of(settings.agent_access).unknown([agent.agent_id for agent in loaded.registry]):
        _log.warning("unknown_agent", name=name, hint="CALLBOARD_AGENT_ACCESS names an agent that does not exist")
    # Imported modules are never freed. Garbage collections that exclude them take a tenth of the time, so that they do
    # not interrupt streams.
    gc.collect()
    gc.freeze()
    return loaded


def _build_app(settings: Settings, variables: Mapping[str, str], url: str | None = None) -> Application:
    """Set up the log, and return the application; `url` is its address, if it is known."""
    redaction = Redaction((*settings.secrets, *secrets_in(variables), *find_secrets(variables)))
    set_up_logging(settings.log_level, redaction)
    settings = asyncio.run(choose_local_model(settings, LOCAL_ENDPOINTS))
    loaded = _load_agents(settings, variables)
    export = begin_export(variables)
    board = Callboard(
        tuple(loaded.registry),
        model=make_default_model(settings),
        authenticate=authenticate_by(settings),
        lifespan=partial(_lifespan, url, settings.has_key, export),
        settings=settings,
        redaction=redaction,
    )
    broken = {f"file {number}": str(problem) for number, problem in enumerate(loaded.problems, 1)}
    board.agents.unavailable.update(loaded.registry.unavailable | broken)
    return board.asgi()


@asynccontextmanager
async def _lifespan(
    url: str | None, has_key: bool, export: Export | None, _routes: Starlette
) -> AsyncGenerator[None, None]:
    """Log the URL when the application has started. When it stops, send the last spans.

    The spans are sent here, because a signal may end the process afterwards.
    """
    if not has_key:
        _log.warning(
            "no_api_key",
            danger="every user and program of this machine can use the server, its tools and all stored chats",
            hint="`callboard key` makes a key and stores it; restart the server, and clients must send the key",
        )
    _log.info("listening", url=url, version=__version__, auth=has_key)
    yield
    if export:
        await export.end()


async def _run_server(app: Application, settings: Settings, listener: socket.socket) -> None:
    limit = compute_connection_limit(
        raise_descriptor_limit(), max_connections=settings.max_connections, max_runs=settings.max_runs
    )
    config = uvicorn.Config(
        app,
        # By default uvicorn uses httptools if it is installed, but httptools does not limit headers.
        http="h11",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        limit_concurrency=limit,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        # A request for a WebSocket is answered like any other. uvicorn would not answer one that is not a GET, and
        # would keep its connection.
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        lifespan="on",
    )
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    except SystemExit:
        # uvicorn exits if the application does not start. The command line prints the reason.
        raise app.start_error or CallboardError("The server did not start.") from None


def make_default_model(settings: Settings) -> ChatModel:
    """Return the model for agents that have no model of their own."""
    if not settings.model_base_url:
        return ScriptedModel()
    key = settings.model_api_key.get_secret_value() if settings.model_api_key else None
    return OpenAICompatible(settings.model_base_url, api_key=key, model=settings.model)


async def choose_local_model(settings: Settings, endpoints: Sequence[LocalEndpoint]) -> Settings:
    """Return the settings. If they have no model, add one that this machine serves. Log whether one was found."""
    if settings.model_base_url or not settings.find_model:
        return settings
    found = await find_local_model(endpoints, settings.model)
    if found is None:
        _log.info("no_model_found", hint="set CALLBOARD_MODEL_BASE_URL; until then only the demo agent answers")
        return settings
    _log.info(
        "model_found",
        program=found.endpoint.program,
        base_url=found.endpoint.base_url,
        model=found.name,
        hint="choose another with CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL, or set CALLBOARD_FIND_MODEL=false",
    )
    # A key in the settings belongs to another endpoint, so it is removed.
    chosen = {"model_base_url": found.endpoint.base_url, "model": found.name, "model_api_key": None}
    return settings.model_copy(update=chosen)


def bind(settings: Settings) -> socket.socket:
    """Return the listening socket. Raises `SettingsError` if the address is in use or belongs to another machine."""
    try:
        return listen(settings.host, settings.port)
    except OSError as error:
        raise SettingsError(
            f"CALLBOARD_HOST, CALLBOARD_PORT: cannot listen on {settings.host}:{settings.port} ({error.strerror}): "
            "stop the program that uses the port, or set another port"
        ) from error
