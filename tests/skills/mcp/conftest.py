"""MCP servers as processes, and a runner of a skill's tools that works like the loop."""

import asyncio
import json
import math
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import structlog

from callboard.calls import StatusChannel, StatusReport, Tool, ToolContext, ToolResult
from callboard.calls.forms import ask_until_fitting
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.server import RunningServer
from callboard_protocol import InputRequest, User
from tests.calls.calling import run_tool
from tests.skills.mcp import installed

HERE = Path(__file__).parent
QUICK = (0.05, 0.2)
"""The shortest and the longest pause in seconds before a server is restarted."""


class Played:
    """A running MCP server, and its tools by the server's own names."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.reports: list[StatusReport] = []
        self.reported = asyncio.Event()
        self.questions: list[InputRequest] = []
        self.answers: list[Any] = []
        """The user's answers, in turn; after them there is nobody to ask."""

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Run the server. The context starts once it has tools or has failed, without a time limit."""
        return self.server.lifespan(wait_seconds=math.inf)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run the server, and yield this object."""
        async with self.lifespan():
            yield self

    def tool(self, name: str) -> Tool:
        found = {tool.name: tool for tool in self.server.tools()}
        return found[f"{self.server.declaration.prefix}_{name}"]

    async def call(self, name: str, timeout_seconds: float = 20, /, **arguments: Any) -> ToolResult:
        return await self.call_as(None, name, timeout_seconds, **arguments)

    async def call_as(
        self, user: User | None, name: str, timeout_seconds: float = 20, /, **arguments: Any
    ) -> ToolResult:
        tool = self.tool(name)
        channel = StatusChannel(self._report)
        call_id = f"call_{user.id if user else 1}"
        context = ToolContext(call_id, tool.name, "chat_1", user, channel, send_question=self._ask)
        return await run_tool(tool, context, timeout_seconds, **arguments)

    async def pid(self) -> int:
        return int((await self.call("pid")).text)

    async def _ask(self, question: InputRequest) -> Any:
        async def answer(asked: InputRequest) -> Any:
            self.questions.append(asked)
            return self.answers.pop(0) if self.answers else None

        return await ask_until_fitting(question, answer)

    def _report(self, report: StatusReport) -> None:
        self.reports.append(report)
        self.reported.set()


class Log:
    """The log lines. `until` waits for a line that was not waited for before."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._read = 0

    def __call__(self, _logger: object, level: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
        self.lines.append({**line, "level": level})
        self._more.set()
        raise structlog.DropEvent

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    async def until(self, event: str, **fields: Any) -> dict[str, Any]:
        while True:
            for line in self.lines[self._read :]:
                self._read += 1
                if line["event"] == event and fields.items() <= line.items():
                    return line
            self._more.clear()
            await self._more.wait()


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    log = Log()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[log])
    yield log
    structlog.configure(processors=before)


Make = Callable[..., Played]


@pytest.fixture
def ours() -> Make:
    """Our own server, with these fields of its declaration."""

    def make(**fields: Any) -> Played:
        declaration = ServerDeclaration("ours", sys.executable, (str(HERE / "our_server.py"),), **fields)
        return Played(RunningServer(declaration, *QUICK))

    return make


@pytest.fixture
def plain(tmp_path: Path) -> Make:
    """A server that follows a script."""

    def make(*tools: Any, confirm: Any = "never", trusted: bool = False, **script: Any) -> Played:
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"pages": [tools], "results": {}, **script}))
        arguments = (str(HERE / "plain_server.py"), str(path))
        declared = ServerDeclaration("plain", sys.executable, arguments, confirm=confirm, trusted=trusted)
        return Played(RunningServer(declared, *QUICK))

    return make


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def node_servers() -> Path:
    return installed.node_servers()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process without a waiting parent is dead as well.
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
