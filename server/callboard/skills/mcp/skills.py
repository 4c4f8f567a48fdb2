"""The skills for MCP servers: one for a single server, and one for all servers of a file."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import structlog
from pydantic import Field, ValidationError

from callboard.calls import Services
from callboard.errors import AgentError
from callboard.settings import SkillSettings
from callboard.skills.mcp.declaration import Confirm, OAuth, ServerDeclaration
from callboard.skills.mcp.server import McpState, RunningServer
from callboard.skills.mcp.server_file import read_server_file
from callboard.skills.skill import Skill, SkillState

TRY_SECONDS = 60.0

_log = structlog.get_logger(__name__)


class McpServer(Skill):
    """The tools of an MCP server, which is a `command` that uses its standard streams, or a `url`.

    The tools are named `<name>_<tool>`. Each application starts its own server and stops it at its end.

    Args:
        name: The server's name.
        command: The program to run.
        args: The program's arguments.
        env: Variables for the program, added to a few harmless ones of this process. No others are passed on.
        cwd: The program's working directory.
        url: The address of a server over streamable HTTP.
        headers: The headers of all HTTP requests.
        confirm: The tools that need the user's approval. `Agent(confirm=("files_*",))` sets it for one agent.
        timeout_seconds: The time limit of a call.
        trusted: The server's hint that a tool only reads is believed, which `confirm="unless_read_only"` needs, and the
            model gets the server's instructions.
        include_tools: Only these tools are offered, by the server's own names; `*` stands for any text.
        exclude_tools: These tools are not offered, also if they are included.
        oauth: How tokens for a `url` are got: `client_id`, `client_secret`, `scopes`, `issuer` and `grant_type`. By
            default each user signs in if the server demands it.

    Raises:
        AgentError: The declaration cannot work.
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
        include_tools: Sequence[str] | None = None,
        exclude_tools: Sequence[str] = (),
        oauth: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            self.declaration = ServerDeclaration(
                name=name,
                command=command,
                args=tuple(args),
                env=env or {},
                cwd=Path(cwd) if cwd else None,
                url=url,
                headers=headers or {},
                confirm=confirm,
                timeout_seconds=timeout_seconds,
                trusted=trusted,
                include_tools=None if include_tools is None else tuple(include_tools),
                exclude_tools=tuple(exclude_tools),
                oauth=OAuth(**(oauth or {})),
            )
        except ValidationError as error:
            faults = "; ".join(f"{detail['loc'][0]}: {detail['msg']}" for detail in error.errors())
            raise AgentError(f"The MCP server '{name}' cannot be declared: {faults}.") from None
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

    async def probe(self) -> McpState:
        """Start the server, return its state, and stop it, for a list of servers."""
        server = RunningServer(self.declaration)
        async with server.lifespan(wait_seconds=TRY_SECONDS):
            return server.state

    @asynccontextmanager
    async def _run(self, services: Services) -> AsyncIterator[SkillState]:
        server = RunningServer(self.declaration, sign_ins=services.sign_ins)
        async with server.lifespan():
            yield SkillState(tools=server.tools, prompt_fragment=server.prompt, conditions=server.list_conditions)


class McpSettings(SkillSettings):
    """MCP servers."""

    mcp_servers: Path | None = Field(
        default=None, description="JSON file of MCP servers (`mcpServers`, as other clients have it), for `assistant`"
    )


class McpServers(Skill):
    """The tools of all MCP servers in a JSON file `{"mcpServers": {"name": {"command": …, "args": […]}}}`.

    The keys are `command`, `args`, `env`, `cwd`, or `url`, `headers` and `oauth`; `type`, `disabled`; and
    Callboard's own `confirm`, `trusted` and `timeoutSeconds`. Other clients' names of these keys are accepted too, and
    their lists of tools and servers that may be used.
    `${NAME}` and `${NAME:-default}` in a value are replaced from the environment. The file is read when the application
    starts, which raises `SettingsError` if it is not JSON. Servers that cannot work are left out.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        super().__init__("mcp", f"The tools of the MCP servers of {self.path.name}.", lifespan=self._run)

    def servers(self) -> list[McpServer]:
        """Return a skill for each server in the file that can work.

        Raises `SettingsError`, and `AgentError` without the library `mcp`.
        """
        return [McpServer(**asdict(declaration)) for declaration in read_server_file(self.path).servers]

    def problems(self) -> tuple[str, ...]:
        """Return a line for each server in the file that is left out, with the reason. Raises `SettingsError`."""
        return read_server_file(self.path).problems

    @classmethod
    def from_settings(cls, variables: Mapping[str, str] | None = None) -> Self:
        """Return the skill for the environment's file. Raises `NotSetUp`, `SettingsError`."""
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
            # In parallel, so that a slow server does not delay the others.
            opening = (stack.enter_async_context(server.open(services)) for server in self.servers())
            running = await asyncio.gather(*opening)
            yield SkillState(
                tools=lambda: tuple(tool for skill in running for tool in skill.current_tools()),
                prompt_fragment=lambda: "\n\n".join(filter(None, (skill.current_prompt() for skill in running))),
                conditions=lambda: (
                    *(line for skill in running for line in skill.current_conditions()),
                    *(f"left out: {problem}" for problem in problems),
                ),
            )
