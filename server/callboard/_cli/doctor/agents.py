"""Checks of the agents and the MCP servers whose tools they have."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from callboard._agents import Agent
from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard.errors import AgentError, NotSetUp, SettingsError
from callboard.skills.mcp import McpServers
from callboard.skills.mcp.server import McpState

AGENTS = "agents"
MCP = "MCP servers"
ASSISTANT = "assistant"
"""The agent that has the tools of `CALLBOARD_MCP_SERVERS`."""


async def check_agents(context: Context) -> AsyncIterator[Finding]:
    """Say which agents there are, what each lacks, and which could not be loaded."""
    loaded = context.loaded
    names = [
        f"{agent.agent_id} ({len(agent.tools)} tools)" if isinstance(agent, Agent) else agent.agent_id
        for agent in loaded.registry
    ]
    yield well(AGENTS, ", ".join(names)) if names else broken(AGENTS, "there is none")
    for agent_id, lines in loaded.lacks.items():
        for line in lines:
            yield unset(f"agent {agent_id}", f"lacks {line}")
    for agent_id, reason in loaded.left_out.items():
        yield unset(f"agent {agent_id}", f"left out, {reason}")
    for problem in loaded.problems:
        yield broken(AGENTS, problem)


async def check_mcp(context: Context) -> AsyncIterator[Finding]:
    """Start each MCP server of `CALLBOARD_MCP_SERVERS` once, side by side, and end it."""
    try:
        declared = McpServers.from_settings(context.variables)
        servers, problems = declared.servers(), declared.problems()
    except NotSetUp:
        yield unset(MCP, "none is set")
        return
    except (AgentError, SettingsError) as error:
        yield broken(MCP, error)
        return
    for problem in problems:
        yield broken(MCP, problem)
    if not servers and not problems:
        yield unset(MCP, f"{declared.path} declares none")
    states = await asyncio.gather(*(server.probe(context.timeout_seconds) for server in servers))
    for server, state in zip(servers, states, strict=True):
        for finding in _tell(f"MCP server {server.name}", state):
            yield finding
    own = [
        tool.name
        for agent in context.loaded.registry
        if isinstance(agent, Agent) and agent.agent_id == ASSISTANT
        for tool in agent.tools
    ]
    named = Counter([*own, *(name for state in states for name in state.tool_names)])
    for name in (name for name, count in named.items() if count > 1):
        yield broken(MCP, f"several tools are named {name}, and the assistant is offered none", "rename the server")


def _tell(subject: str, state: McpState) -> Iterator[Finding]:
    if state.status == "ready":
        yield well(subject, f"{state.tools} tools")
    else:
        yield broken(subject, state.reason or "it has no tools yet", "run its command by hand, or mend its entry")
    for note in state.notes:
        yield unset(subject, note)
