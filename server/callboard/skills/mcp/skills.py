"""The `mcp` skills: one of an MCP server, or of all servers of a file."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import structlog
from pydantic import Field

from callboard._settings import SkillSettings
from callboard.calls import Services
from callboard.errors import AgentError
from callboard.skills.mcp.declaration import Confirm, ServerDeclaration, Transport
from callboard.skills.mcp.server import McpState, RunningServer
from callboard.skills.mcp.server_file import read_server_file
from callboard.skills.skill import Skill, SkillState

TRY_SECONDS = 60.0

_log = structlog.get_logger(__name__)


class McpServer(Skill):
    """The tools of an MCP server: a `command` that speaks over its standard streams, or the `url` of one over HTTP.

    They are named `<name>_<tool>`. The server runs while the application does, one for each
    application. It gets `env` and a safe few of our own variables, and none else. `confirm`: which
    of its tools ask the user first; `Agent(confirm=("files_*",))` does the same for one agent.
    `trusted`: the server is believed that a tool only reads, which `confirm="unless_read_only"` needs.
    `transport`: `"http"` or `"sse"`, the older one, for a `url`; it is found out where it is not given. Raises
    `AgentError` for a declaration that cannot work.
    """

    def __init__(
        self,
        name: str,
        *,
        command: str = "",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        confirm: Confirm = "never",
        timeout_seconds: float | None = None,
        trusted: bool = False,
        transport: Transport | None = None,
    ) -> None:
        folder = Path(cwd).expanduser() if cwd else None
        self.declaration = ServerDeclaration(
            name,
            command,
            tuple(args),
            dict(env or {}),
            folder,
            url,
            dict(headers or {}),
            confirm,
            timeout_seconds,
            trusted,
            transport,
        )
        if find_spec("mcp") is None:
            needed = "needs the library mcp: install it with pip install callboard[mcp]."
            raise AgentError(f"The MCP server '{name}' {needed}")
        super().__init__(
            self.declaration.prefix,
            f"The tools of the MCP server {name}.",
            lifespan=self._run,
            secrets=self.declaration.secrets,
            tool_prefix=self.declaration.prefix,
        )

    async def probe(self, wait_seconds: float = TRY_SECONDS) -> McpState:
        """Start the server, see how it is, and end it: for commands that list what there is."""
        server = RunningServer(self.declaration)
        async with server.lifespan(wait_seconds=wait_seconds):
            return server.state

    @asynccontextmanager
    async def _run(self, _services: Services) -> AsyncIterator[SkillState]:
        server = RunningServer(self.declaration)
        async with server.lifespan():
            yield SkillState(tools=server.tools, conditions=server.list_conditions)


class McpSettings(SkillSettings):
    """MCP servers."""

    mcp_servers: Path | None = Field(
        default=None, description="JSON file of MCP servers (`mcpServers`, as other clients have it), for `assistant`"
    )


class McpServers(Skill):
    """The tools of all MCP servers of a JSON file `{"mcpServers": {"name": {"command": …, "args": […]}}}`.

    Keys: `command`, `args`, `env`, `cwd`, or `url`, `headers` and `type` (`http` or `sse`); `disabled`; and Callboard's
    own, `confirm`, `trusted` and `timeoutSeconds`. Other clients' names of these are read too. `${NAME}` and
    `${NAME:-default}` in a value come from the environment. The file is read when the application starts, which raises
    `SettingsError` if it is no JSON. A server that cannot work is left out.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        super().__init__("mcp", f"The tools of the MCP servers of {self.path.name}.", lifespan=self._run)

    def servers(self) -> list[McpServer]:
        """Return a skill for each server that the file declares now and that can work.

        Raises `SettingsError`, and `AgentError` without the library `mcp`.
        """
        return [McpServer(**asdict(declaration)) for declaration in read_server_file(self.path).servers]

    def problems(self) -> tuple[str, ...]:
        """Return a line on each server of the file that is left out, and why. Raises `SettingsError`."""
        return read_server_file(self.path).problems

    @classmethod
    def from_settings(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Return the skill of the file that the environment names. Raises `NotSetUp`, `SettingsError`."""
        settings = McpSettings.load(variables)
        if settings.mcp_servers is None:
            raise settings.not_set_up()
        return cls(settings.mcp_servers)

    @asynccontextmanager
    async def _run(self, services: Services) -> AsyncIterator[SkillState]:
        problems = self.problems()
        for problem in problems:
            _log.warning("mcp_server_left_out", reason=problem)
        async with AsyncExitStack() as stack:
            # Side by side: one that is slow to start holds up no other.
            opening = (stack.enter_async_context(server.open(services)) for server in self.servers())
            running = await asyncio.gather(*opening)
            yield SkillState(
                tools=lambda: tuple(tool for skill in running for tool in skill.current_tools()),
                conditions=lambda: (
                    *(line for skill in running for line in skill.current_conditions()),
                    *(f"left out: {problem}" for problem in problems),
                ),
            )
