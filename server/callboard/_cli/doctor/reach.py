"""Checks of the agents, of the MCP servers, and of the server's port."""

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator

from callboard._cli.doctor.settings import Context
from callboard._cli.health import ask_health
from callboard._cli.serve import bind
from callboard._version import __version__
from callboard.agents import Agent
from callboard.errors import NotSetUp, SettingsError
from callboard.skills.mcp import McpServers

ASSISTANT = "assistant"
"""The id of the agent that gets the tools of `CALLBOARD_MCP_SERVERS`."""


async def check_agents(context: Context) -> AsyncIterator[str]:
    """List the agents, the missing parts of each, and the agents that could not be loaded."""
    loaded = context.loaded
    names = [
        f"{agent.agent_id} ({len(agent.tools)} tools)" if isinstance(agent, Agent) else agent.agent_id
        for agent in loaded.registry
    ]
    yield f"✓ agents: {', '.join(names)}"
    for agent_id, lacks in loaded.lacks.items():
        for lack in lacks:
            yield f"– agent {agent_id}: lacks {lack}"
    for agent_id, reason in loaded.registry.unavailable.items():
        yield f"– agent {agent_id}: left out, {reason}"
    for problem in loaded.problems:
        yield f"✗ agents: {problem}"


async def check_mcp(context: Context) -> AsyncIterator[str]:
    """Start and stop each MCP server of `CALLBOARD_MCP_SERVERS`, all at the same time."""
    try:
        declared = McpServers.from_settings(context.variables)
    except NotSetUp:
        yield "– MCP servers: none are set"
        return
    servers, problems = declared.servers(), declared.problems()
    for problem in problems:
        yield f"✗ MCP servers: {problem}"
    if not servers and not problems:
        yield f"– MCP servers: {declared.path} declares none"
    states = await asyncio.gather(*(server.probe(context.options.timeout) for server in servers))
    for server, state in zip(servers, states, strict=True):
        if state.status == "ready":
            yield f"✓ MCP server {server.name}: {state.tools} tools"
        else:
            reason = state.reason or "it has no tools yet"
            yield f"✗ MCP server {server.name}: {reason} → run its command by hand, or correct its entry"
        for note in state.notes:
            yield f"– MCP server {server.name}: {note}"
    assistant = context.loaded.registry.get(ASSISTANT)
    assert isinstance(assistant, Agent)
    names = Counter(tool.name for tool in assistant.tools)
    names.update(name for state in states for name in state.tool_names)
    for name, count in names.items():
        if count > 1:
            yield f"✗ MCP servers: several tools are named {name}, so the assistant gets none of them → rename a server"


async def check_port(context: Context) -> AsyncIterator[str]:
    """Listen on the port for a moment. If it is in use, find out whether a Callboard server uses it."""
    settings = context.settings
    try:
        bind(settings).close()
    except SettingsError as error:
        is_taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        url = settings.own_url
        health = await ask_health(url, context.options.timeout) if url and is_taken else None
        if health is None:
            raise
        line = f"a Callboard server runs at {url}, version {health.version}"
        if health.status != "ok":
            yield f"✗ port: {line}, but reports a problem: {health.reason}"
        elif health.version != __version__:
            yield f"– port: {line} → restart it to run version {__version__}"
        else:
            yield f"✓ port: {line}"
    else:
        yield f"✓ port: {f'{settings.port} is free' if settings.port else 'any free port'}"
