"""What users write: a skill from an MCP server, or one from each server of a file."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MethodType

from callboard.errors import AgentError
from callboard.skills.mcp.config import read_declarations
from callboard.skills.mcp.declaration import Confirm, ServerDeclaration
from callboard.skills.mcp.server import McpServer, McpState
from callboard.skills.skill import Skill

TRY_SECONDS = 60.0


def mcp_server(
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
) -> Skill:
    """An MCP server as a skill: a `command` that speaks over its standard streams, or the `url` of one over HTTP.

    Its tools are named `<name>_<tool>`. It gets `env` and a safe few of our own variables, and none
    else. `confirm`: which of its tools ask the user first; `Agent(confirm=("files_*",))` does the
    same for one agent. Raises `AgentError` for a declaration that cannot work.
    """
    folder = Path(cwd).expanduser() if cwd else None
    return _skill(
        ServerDeclaration(
            name, command, tuple(args), dict(env or {}), folder, url, dict(headers or {}), confirm, timeout_seconds
        )
    )


def mcp_skills(path: str | Path) -> list[Skill]:
    """A skill for each server of a JSON file `{"mcpServers": {"name": {"command": …, "args": […]}}}`.

    Keys: `command`, `args`, `env`, `cwd`, or `url` and `headers`; `disabled`; and Callboard's own,
    `confirm` and `timeoutSeconds`. `${NAME}` and `${NAME:-default}` in a value come from the
    environment. Raises `SettingsError` with the place of each fault.
    """
    return [_skill(declaration) for declaration in read_declarations(Path(path))]


def mcp_state(skill: Skill) -> McpState | None:
    """How the skill's MCP server is; None where it has none."""
    server = _server_of(skill)
    return server.state if server else None


async def try_mcp_server(skill: Skill, wait_seconds: float = TRY_SECONDS) -> McpState | None:
    """Starts the skill's MCP server, sees how it is and ends it; None where it has none.

    For commands that list what there is; not while a Callboard server runs it.
    """
    server = _server_of(skill)
    if server is None:
        return None
    async with server.lifespan(wait_seconds=wait_seconds):
        return server.state


def _skill(declaration: ServerDeclaration) -> Skill:
    if find_spec("mcp") is None:
        raise AgentError(
            f"The MCP server '{declaration.name}' needs the library mcp: install it with pip install callboard[mcp]."
        )
    server = McpServer(declaration)
    return Skill(
        declaration.prefix,
        f"The tools of the MCP server {declaration.name}.",
        tools=server.tools,
        lifespan=server.lifespan,
    )


def _server_of(skill: Skill) -> McpServer | None:
    match skill.lifespan:
        case MethodType(__self__=McpServer() as server):
            return server
        case _:
            return None
