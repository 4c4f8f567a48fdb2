"""`callboard serve`: reads the settings, loads the agents, listens."""

import argparse
import asyncio
import gc
import importlib.util
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import structlog
import uvicorn
import watchfiles

from callboard.agents import Agent, Registry, load_all_agents
from callboard.errors import CallboardError, SettingsError
from callboard.history import ANY_USER, Chats, Store
from callboard.http import ServerState, create_app, open_state
from callboard.settings import Settings, load_settings, unknown_settings
from callboard.skills.mcp import mcp_skills, try_mcp_server
from callboard.version import __version__

SHUTDOWN_SECONDS = 10
"""How long open connections may take to end once the runs have."""

_log = structlog.get_logger(__name__)


class Server(uvicorn.Server):
    """Uvicorn, but runs are ended before connections are: each stream gets its last event.

    `closing` is what else is to be put away; after `serve` it would be too late, since there
    uvicorn raises the signal again that told it to stop.
    """

    def __init__(self, config: uvicorn.Config, state: ServerState, closing: AsyncExitStack) -> None:
        super().__init__(config)
        self._state = state
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the runs, then the connections, then what is left."""
        await self._state.runs.close()
        await super().shutdown(sockets)
        await self._closing.aclose()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="callboard", description="Agents for Open WebUI, every tool call in sight.")
    parser.add_argument("--version", action="version", version=f"callboard {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("serve", help="start the server; settings come from the environment (CALLBOARD_…)")
    start.add_argument("--reload", action="store_true", help="start again when a file of your agents changes")
    commands.add_parser("agents", help="list the agents that were found, and what is missing and why")
    export = commands.add_parser("export", help="print a stored chat as JSON Lines, one message a line")
    export.add_argument(
        "--chat", required=True, metavar="ID", help="the chat's id, as Open WebUI's address bar shows it"
    )
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "export":
            return asyncio.run(export_chat(chosen.chat))
        if chosen.command == "agents":
            return list_agents()
        return reload_on_change() if chosen.reload else serve()
    except SettingsError as error:
        print(f"callboard: the settings are wrong\n{error}", file=sys.stderr)
    except CallboardError as error:
        print(f"callboard: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130  # what a shell reports of a command that Ctrl-C ended
    return 1


def serve() -> int:
    """Run the server until it is told to stop."""
    settings = load_settings()
    set_up_logging(settings.log_level)
    for name in unknown_settings(os.environ):
        _log.warning("unknown_setting", name=name, hint="docs/reference/settings.md lists the settings")
    registry = load_registry(settings)
    # What was imported stays: without it a collection takes a tenth of the time, and streams do not stutter.
    gc.collect()
    gc.freeze()
    with bind(settings) as listener:
        asyncio.run(_serve(settings, registry, listener))
    return 0


async def _serve(settings: Settings, registry: Registry, listener: socket.socket) -> None:
    api_key = settings.api_key.get_secret_value() if settings.api_key else None
    async with AsyncExitStack() as closing:
        state = await closing.enter_async_context(open_state(settings, registry))
        config = uvicorn.Config(
            create_app(state, api_key),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        host, port = listener.getsockname()[:2]
        _log.info("listening", url=f"http://{host}:{port}", version=__version__, auth=api_key is not None)
        await Server(config, state, closing).serve(sockets=[listener])


async def export_chat(chat_id: str) -> int:
    """Print the chat's messages, each tool message with its status events."""
    store = await Store.open(load_settings().resolved_database_url)
    try:
        chats = Chats(store, ANY_USER)
        stored = await chats.messages(chat_id)
        events = {call.tool_call_id: call.events for call in await chats.timeline(chat_id)}
    finally:
        await store.close()
    for message in stored:
        line = asdict(message)
        if message.tool_call_id is not None:
            line["events"] = [asdict(event) for event in events[message.tool_call_id]]
        print(json.dumps(line, ensure_ascii=False))
    return 0


def list_agents() -> int:
    """Print each agent with its tools and its source, then what is missing; 1 where a source is broken."""
    settings = load_settings()
    loaded = load_all_agents(settings)
    for agent in loaded.registry:
        tools = [tool.name for tool in agent.tools] if isinstance(agent, Agent) else []
        print(f"{agent.agent_id}: {agent.description} ({loaded.sources[agent.agent_id]})")
        if tools:
            print(f"    tools: {', '.join(tools)}")
    for agent_id, reason in loaded.left_out.items():
        print(f"{agent_id}: left out, {reason}")
    for skill in mcp_skills(settings.mcp_servers) if settings.mcp_servers else ():
        if state := asyncio.run(try_mcp_server(skill)):
            print(f"MCP server {skill.name}: {state.reason or f'{state.tools} tools'}")
    for problem in loaded.problems:
        print(f"left out: {problem}", file=sys.stderr)
    return 1 if loaded.problems else 0


def reload_on_change() -> int:
    """`serve` in a process of its own, started again whenever one of the user's agent files changes."""
    watched = {_watched(source) for source in load_settings().agents}
    if not watched:
        raise SettingsError("CALLBOARD_AGENTS is not set: --reload has no file to watch.")
    watchfiles.run_process(*watched, target=main, args=(["serve"],), watch_filter=watchfiles.PythonFilter())
    return 0


def _watched(source: str) -> Path:
    path = Path(source).expanduser()
    if path.exists():
        return path if path.is_dir() else path.parent
    spec = importlib.util.find_spec(source)
    if spec is None or spec.origin is None:
        raise SettingsError(f"CALLBOARD_AGENTS: there is no file, folder or module {source}.")
    return Path(spec.origin).parent


def load_registry(settings: Settings) -> Registry:
    """The agents: the built-in ones and the user's. What is broken is logged and left out."""
    loaded = load_all_agents(settings)
    for agent_id, reason in loaded.left_out.items():
        _log.info("agent_left_out", agent=agent_id, reason=reason)
    for problem in loaded.problems:
        _log.error("agent_left_out", reason=str(problem))
    return loaded.registry


def bind(settings: Settings) -> socket.socket:
    """The listening socket; raises `SettingsError` where the address is taken or not ours."""
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise SettingsError(
            f"CALLBOARD_HOST, CALLBOARD_PORT: cannot listen on {settings.host}:{settings.port} ({error.strerror}): "
            "stop what uses that port, or set another"
        ) from error


def set_up_logging(level: str) -> None:
    """One line an event, to standard error: coloured in a terminal, JSON elsewhere."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not sys.stderr.isatty():
        shared.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=max(number, logging.WARNING), format="%(levelname)s %(name)s: %(message)s")
