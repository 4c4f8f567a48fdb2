"""MCP servers of agents of the OpenAI Agents SDK: one process for each server, for as long as Callboard runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike
from callboard_protocol import Error, ToolCallComplete, ToolCallError, ToolCallStart, ToolRequest
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Answer, Body, OpenAIServer
from tests.frameworks.scenarios import calls, says
from tests.frameworks.stage import openai_client
from tests.serving import Service, request, serving

if TESTS_RUN:
    from agents import Agent, Model, OpenAIChatCompletionsModel
    from agents.mcp import MCPServer, MCPServerStdio

    from callboard.frameworks.openai_agents import from_openai_agents
    from tests.frameworks.openai_agents_stage import UNTRACED, offered

SOURCE = """
import asyncio
import os

from mcp.server.mcpserver import MCPServer

server = MCPServer("processes")


@server.tool()
def pid() -> str:
    return str(os.getpid())


@server.tool()
async def wait() -> str:
    await asyncio.Event().wait()


@server.tool()
def fail() -> str:
    raise ValueError("too small")


server.run("stdio")
"""


def processes(**fields: Any) -> MCPServerStdio:
    """A server whose tool `pid` returns the id of its process."""
    return MCPServerStdio({"command": sys.executable, "args": ["-c", SOURCE]}, **fields)


@dataclass
class Desk:
    """A Callboard server with one agent."""

    service: Service

    def request(self) -> Body:
        return request(agent="agent")

    async def pid(self) -> int:
        """The id of the process that answers a run's call."""
        events = await self.service.events(self.request())
        [result] = [event.result for event in events if isinstance(event, ToolCallComplete)]
        return int(result)


@asynccontextmanager
async def desk(folder: Path, make: Any, *, tool: str = "pid", **values: Any) -> AsyncIterator[Desk]:
    def script(body: Body) -> Answer:
        if tool not in offered(body):
            return says("A title.")
        return says("There.") if body["messages"][-1]["role"] == "tool" else calls((tool, "{}"))

    async with OpenAIServer(script) as endpoint:
        async with openai_client(endpoint.base_url) as client:
            agent: AgentLike = make(OpenAIChatCompletionsModel("m", client))
            async with serving(folder, agent, **values) as service:
                yield Desk(service)


def one_agent(*servers: MCPServer) -> Any:
    def make(model: Model) -> AgentLike:
        agent = Agent("agent", model=model, mcp_servers=[*servers])
        return from_openai_agents(agent, run_config=UNTRACED)

    return make


def made_anew(model: Model) -> AgentLike:
    """An agent that a function creates for each run, with its own server."""
    return from_openai_agents(
        lambda _: Agent("agent", model=model, mcp_servers=[processes()]), agent_id="agent", run_config=UNTRACED
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("made_for_each_run", [False, True])
async def test_runs_share_mcp_process_which_ends_with_server(made_for_each_run: bool, tmp_path: Path) -> None:
    async with desk(tmp_path, made_anew if made_for_each_run else one_agent(processes())) as served:
        pids = [await served.pid() for _ in range(3)]
        assert len(set(pids)) == 1
        assert is_alive(pids[0])
    assert not is_alive(pids[0])


async def test_tool_of_a_server_wins_over_open_webuis_tool_of_the_same_name(tmp_path: Path) -> None:
    async with desk(tmp_path, one_agent(processes()), tool_timeout_seconds=5) as served:
        body = served.request() | {"chat_id": "c", "openwebui_tools": [{"name": "pid"}]}
        events = await served.service.events(body)
    assert [type(event) for event in events if isinstance(event, ToolRequest)] == []
    [result] = [event.result for event in events if isinstance(event, ToolCallComplete)]
    assert result.isdecimal()


async def test_parallel_runs_share_mcp_process(tmp_path: Path) -> None:
    async with desk(tmp_path, made_anew) as served:
        pids = await asyncio.gather(*(served.pid() for _ in range(3)))
    assert len(set(pids)) == 1
    assert not is_alive(pids[0])


@pytest.mark.slow
async def test_mcp_process_survives_cancelled_run(tmp_path: Path) -> None:
    server = processes()
    async with desk(tmp_path, one_agent(server), tool="wait") as served:
        body = served.request()
        async with served.service.client.stream("POST", "/v1/runs", json=body) as stream:
            run_id = stream.headers["X-Callboard-Run"]
            async for line in stream.aiter_lines():
                if "tool:call:start" in line:
                    await served.service.client.post(f"/v1/runs/{run_id}/cancel")
        result: Any = await server.call_tool("pid", {})
        pid = int(result.content[0].text)
        assert is_alive(pid)
    assert not is_alive(pid)


async def test_mcp_server_connected_by_author_is_not_closed(tmp_path: Path) -> None:
    async with processes() as server:
        async with desk(tmp_path, one_agent(server)) as served:
            pid = await served.pid()
        assert is_alive(pid)


async def test_ended_mcp_server_is_restarted(tmp_path: Path) -> None:
    async with desk(tmp_path, one_agent(processes())) as served:
        first = await served.pid()
        os.kill(first, signal.SIGKILL)
        second = await served.pid()
        assert first != second
    assert not is_alive(second)


async def test_servers_of_different_configuration_are_different(tmp_path: Path) -> None:
    names = iter(("one", "two"))

    def make(model: Model) -> AgentLike:
        return from_openai_agents(
            lambda _: Agent("agent", model=model, mcp_servers=[processes(name=next(names))]),
            agent_id="agent",
            run_config=UNTRACED,
        )

    async with desk(tmp_path, make) as served:
        pids = [await served.pid() for _ in range(2)]
        assert len(set(pids)) == 2
    assert not any(is_alive(pid) for pid in pids)


async def test_mcp_server_that_cannot_start_is_named(tmp_path: Path) -> None:
    server = MCPServerStdio({"command": "/no/such/program", "args": []}, name="broken")
    async with desk(tmp_path, one_agent(server)) as served:
        error = (await served.service.events(served.request()))[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "Cannot connect to the MCP server 'broken'" in error.message


@pytest.mark.parametrize(("tool", "code", "seconds"), [("wait", "timeout", 0.3), ("fail", "tool_failed", 30)])
async def test_failed_calls_of_mcp_tools_are_shown(tool: str, code: str, seconds: float, tmp_path: Path) -> None:
    async with desk(tmp_path, one_agent(processes()), tool=tool, tool_timeout_seconds=seconds) as served:
        events = await served.service.events(served.request())
    assert [event.tool_name for event in events if isinstance(event, ToolCallStart)] == [tool]
    assert [event.code for event in events if isinstance(event, ToolCallError)] == [code]
