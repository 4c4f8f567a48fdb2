"""`callboard agents`: lists the agents with their tools, and the agents and servers that are left out."""

import argparse
import asyncio
import sys

from callboard._logging import set_up_logging
from callboard.agents import Agent
from callboard.agents.loading import load_all_agents
from callboard.errors import NotSetUp
from callboard.settings import load_settings
from callboard.skills.mcp.skills import McpServer, McpServers


def run(_options: argparse.Namespace) -> int:
    """Print each agent with its tools and its source, then the agents that are left out.

    Return 1 if a source of agents cannot be loaded.
    """
    settings = load_settings()
    set_up_logging("warning")
    loaded = load_all_agents(settings)
    for agent in loaded.registry:
        tools = [tool.name for tool in agent.tools] if isinstance(agent, Agent) else []
        print(f"{agent.agent_id}: {agent.description} ({loaded.sources[agent.agent_id]})")
        if tools:
            print(f"    tools: {', '.join(tools)}")
        for line in loaded.lacks.get(agent.agent_id, ()):
            print(f"    lacks {line}")
    for agent_id, reason in loaded.registry.unavailable.items():
        print(f"{agent_id}: left out, {reason}")
    servers, problems = _read_servers()
    for server in servers:
        state = asyncio.run(server.probe())
        print(f"MCP server {server.name}: {state.reason or f'{state.tools} tools'}")
        for note in state.notes:
            print(f"    {note}")
    for problem in (*loaded.problems, *problems):
        print(f"left out: {problem}", file=sys.stderr)
    return 1 if loaded.problems else 0


def _read_servers() -> tuple[list[McpServer], tuple[str, ...]]:
    """Return the declared MCP servers, and a problem for each server that is left out."""
    try:
        declared = McpServers.from_settings()
        return declared.servers(), declared.problems()
    except NotSetUp:
        return [], ()
