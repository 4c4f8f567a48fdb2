"""Calls that a server turns into tasks, with a server in a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from callboard import Agent
from callboard.skills import McpServer
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.server import RunningServer
from callboard_protocol import Done, Event, InputRequest, ToolCallComplete, ToolStatus
from tests import processes
from tests.fakes.openai_server import Answer, OpenAIServer, call, chunks, finish, text
from tests.serving import numbered, request, serving
from tests.skills.mcp.conftest import HERE, QUICK, Log, Played

ANSWER = chunks(text("It is built."), finish("stop"))
AGENTS = """
from callboard import Agent, register
from callboard.skills import McpServer

register(Agent("scripted", skills=(McpServer("tasks", url="{url}", confirm="always"),)))
"""


def builds(*kinds: str) -> Answer:
    written = (
        call("tasks_build", json.dumps({"kind": kind}), index=place, call_id=f"c{place}")
        for place, kind in enumerate(kinds)
    )
    return chunks(*written, finish("tool_calls"))


class Builder:
    """The server of `task_server.py`, and the requests about tasks that it has got."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._port = port
        self._folder = folder

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the process, and kill it in the end."""
        command = [sys.executable, str(HERE / "task_server.py"), str(self._port), str(self._folder)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                assert any("Uvicorn running" in line for line in process.stderr)
                yield
            finally:
                process.kill()

    def finish(self) -> None:
        """Let its tasks end."""
        (self._folder / "finish").touch()

    def log(self) -> list[str]:
        return (self._folder / "log").read_text().splitlines()

    def requests(self) -> list[str]:
        return [line.split()[0] for line in self.log()]

    def task_ids(self) -> set[str]:
        return {line.split()[1] for line in self.log()}


@pytest.fixture
def stopped_builder(tmp_path: Path, free_port: int) -> Builder:
    folder = tmp_path / "builder"
    folder.mkdir()
    return Builder(free_port, folder)


@pytest.fixture
def builder(stopped_builder: Builder) -> Iterator[Builder]:
    with stopped_builder.running():
        yield stopped_builder


def shows(event: Event, message: str) -> bool:
    return isinstance(event, ToolStatus) and event.data.message == message


async def test_tasks_are_followed_to_their_ends(tmp_path: Path, builder: Builder) -> None:
    events: list[Event] = []
    async with OpenAIServer([builds("plain", "asking", "failing", "sampling"), ANSWER]) as model:
        agent = Agent("scripted", skills=(McpServer("tasks", url=builder.url),))
        async with serving(tmp_path, agent, model_base_url=model.base_url, model="m") as service:
            async with service.client.stream("POST", "/v1/runs", json=request(run_id="run")) as response:
                async for _, event in numbered(response):
                    events.append(event)
                    if shows(event, "step 3"):
                        builder.finish()
                    if isinstance(event, InputRequest):
                        answer = {"request_id": event.request_id, "value": {"town": "Graz"}}
                        await service.client.post("/v1/runs/run/input", json=answer)
    plain, asking, failing, sampling = (message["content"] for message in model.requests[1]["messages"][-4:])
    assert plain == "built here"
    assert asking == "built {'where': {'action': 'accept', 'content': {'town': 'Graz'}}}"
    ended = "Error: The MCP server 'tasks' ended the task of this call as failed: Connection closed: no bricks"
    assert failing == ended
    assert "Input should be 'elicitation/create'" in sampling
    assert [event.tool_call_id for event in events if isinstance(event, InputRequest)] == ["c1"]
    assert [line.partition("-")[0] for line in builder.log() if line.startswith("tasks/cancel")] == [
        "tasks/cancel sampling"
    ]


@pytest.mark.parametrize("how", ["stopped by its user", "out of time"])
async def test_task_of_a_stopped_call_is_cancelled(tmp_path: Path, builder: Builder, how: str) -> None:
    is_stopped = how == "stopped by its user"
    async with OpenAIServer([builds("plain"), ANSWER]) as model:
        server = McpServer("tasks", url=builder.url, timeout_seconds=60 if is_stopped else 0.5)
        settings = {"model_base_url": model.base_url, "model": "m"}
        async with serving(tmp_path, Agent("scripted", skills=(server,)), **settings) as service:
            async with service.client.stream("POST", "/v1/runs", json=request(run_id="run")) as response:
                async for _, event in numbered(response):
                    if shows(event, "step 2") and is_stopped:
                        await service.client.post("/v1/runs/run/cancel")
    assert event == Done(finish_reason="cancelled" if is_stopped else "stop")
    assert builder.requests()[-1] == "tasks/cancel"


async def test_task_is_followed_after_a_restart_of_its_own_server(stopped_builder: Builder, log: Log) -> None:
    played = Played(RunningServer(ServerDeclaration("tasks", url=stopped_builder.url), *QUICK))
    async with AsyncExitStack() as stack:
        with stopped_builder.running():
            await stack.enter_async_context(played.lifespan())
            calling = asyncio.create_task(played.call("build", 60, kind="plain"))
            await played.reported.wait()
        await log.until("mcp_server_lost")
        stopped_builder.finish()
        with stopped_builder.running():
            assert (await calling).text == "built here"
    assert stopped_builder.requests().count("tools/call") == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_task_is_followed_by_the_next_server(tmp_path: Path, builder: Builder, how: signal.Signals) -> None:
    agents = tmp_path / "agents.py"
    agents.write_text(AGENTS.format(url=builder.url))
    events: list[tuple[int, Event]] = []
    async with OpenAIServer([builds("plain"), ANSWER]) as model:
        settings = {"AGENTS": str(agents), "MODEL_BASE_URL": model.base_url, "MODEL": "m", "DRAIN_SECONDS": "0"}
        asked = request(run_id="run", chat_id="chat", message_id="message")
        # A server waits only a few seconds for tools, and the SDK takes some to import on a busy machine.
        processes.preload("callboard.skills.mcp.connection")
        with processes.serving(tmp_path / "data", **settings) as (url, process):
            async with (
                httpx.AsyncClient(base_url=url, timeout=None) as client,
                client.stream("POST", "/v1/runs", json=asked) as response,
            ):
                async for number, event in numbered(response):
                    events.append((number, event))
                    if isinstance(event, InputRequest):
                        answer = {"request_id": event.request_id, "value": True}
                        await client.post("/v1/runs/run/input", json=answer)
                    if shows(event, "step 2"):
                        break
            os.kill(process.pid, how)
            await asyncio.to_thread(process.wait)
        followed = len(builder.requests())
        with processes.serving(tmp_path / "data", **settings) as (url, process):
            async with (
                httpx.AsyncClient(base_url=url, timeout=None) as client,
                client.stream("GET", f"/v1/runs/run/events?after={events[-1][0]}") as response,
            ):
                async for number, event in numbered(response):
                    events.append((number, event))
                    if isinstance(event, ToolStatus) and len(builder.requests()) > followed:
                        builder.finish()
    assert [event.result for _, event in events if isinstance(event, ToolCallComplete)] == ["built here"]
    assert isinstance(events[-1][1], Done)
    assert model.requests[1]["messages"][-1]["content"] == "built here"
    assert builder.requests().count("tools/call") == 1
    assert "tasks/cancel" not in builder.requests()
    # The consent was given once.
    assert len([event for _, event in events if isinstance(event, InputRequest)]) == 1
    assert len(builder.task_ids()) == 1
