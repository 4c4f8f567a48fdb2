"""A running MCP server: starts it, restarts it when it ends, and stops it.

One task owns the connection, because anyio's scopes must be left in the task that entered them. Calls come from the
tasks of the runs.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import anyio
import structlog

from callboard.calls import Tool, ToolContext, ToolResult
from callboard.errors import ToolError
from callboard.skills.mcp.catalogue import MAX_NAME_CHARS, MAX_TITLE_CHARS, build_catalogue
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.schema import clean_text
from callboard.skills.mcp.signals import ENDED, FORGOTTEN, ForgottenSession, NotSignedIn, Signals
from callboard.skills.mcp.user_connections import UserConnections
from callboard.skills.skill import quote

if TYPE_CHECKING:
    from mcp_types import Tool as McpTool

    # Not at run time: the file of an agent imports this module, and must not load a database library.
    from callboard.calls.sign_ins import SignIns
    from callboard.skills.mcp.session import Session

FIRST_TOOLS_SECONDS = 5.0
"""The time that Callboard's start waits for a server's tools, and the end of a call for tools that it has changed.
Tools of a slower server are added later."""

STABLE_SECONDS = 60.0
"""After a connection of this length the pauses before a restart begin anew."""

CHANGE_PAUSE_SECONDS = 0.2
"""Changes come in bursts, and the list is read once for all of them."""

REPORT_SECONDS = 0.1
"""The time that a report of a change may come after the result of the call over HTTP, where it has its own connection.
Measured with the SDK's server: 5 ms."""

RENEW_SECONDS = 20.0
"""The time that a call waits for a new session after the server has forgotten the old one."""

LAST_CALLS_SECONDS = 3.0
"""The time that calls of a forgotten session may take to end before the session is closed."""

MAX_NOTES = 20
"""The most notes about tools that are left out, and the most log lines about them for each reading of the list."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class McpState:
    """The state of a server.

    Attributes:
        status: Whether it runs. `sign-in`: each user has a connection of their own.
        reason: Why it does not run.
        tool_names: The names of its tools for the model, now or when it last ran.
        notes: A line for each tool that cannot be used, and for settings without the expected effect.
    """

    status: Literal["stopped", "starting", "ready", "restarting", "sign-in"] = "stopped"
    reason: str = ""
    tool_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tools(self) -> int:
        """The number of its tools."""
        return len(self.tool_names)


class RunningServer:
    """One server. Its tools are kept while it restarts.

    The first pause before a restart lasts `first_pause_seconds`, and each further one is twice as long, up to
    `longest_pause_seconds`. With `sign_ins`, users can sign in to it. The connection of the user with `user_id` has a
    `parent`, which has no token itself, and offers the tools of all users.
    """

    def __init__(
        self,
        declaration: ServerDeclaration,
        first_pause_seconds: float = 1.0,
        longest_pause_seconds: float = 60.0,
        *,
        sign_ins: "SignIns | None" = None,
        user_id: str | None = None,
        parent: "RunningServer | None" = None,
    ) -> None:
        self.declaration = declaration
        self.state = McpState()
        self.instructions = ""
        """The instructions of a trusted server for the model, as it sent them last."""
        self._first_pause_seconds = first_pause_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._tools: tuple[Tool, ...] = ()
        self._read: tuple[list[McpTool], list[tuple[str, str]]] = ([], [])
        """The latest list, and the tools that were left out of it with the reasons."""
        self._session: Session | None = None
        self._signals = Signals()
        self._reading = asyncio.Lock()
        self._ready_since: float | None = None
        self._next_start = 0.0
        self._mode: Literal["auto", "legacy"] = "auto"
        self._sign_ins = sign_ins
        self._user_id = user_id
        self._parent = parent
        self._users = UserConnections(declaration.name, self._make_connection)
        self._listed: dict[str, McpTool] = {}
        """The tools that users have listed, by name."""

    def tools(self) -> tuple[Tool, ...]:
        """Return its tools, or those it had before it was lost; until a user has signed in, one that does so."""
        return self._tools or ((self._sign_in_tool,) if self.state.status == "sign-in" else ())

    @property
    def is_idle(self) -> bool:
        """Whether it has no open calls."""
        return not self._signals.open_calls

    def find_tool(self, name: str) -> Tool | None:
        """Return the tool of this name in the latest list, None if there is none."""
        return next((tool for tool in self._tools if tool.name == name), None)

    def prompt(self) -> str:
        """Return the server's instructions as a part of the system prompt, "" if there are none."""
        if not self.instructions:
            return ""
        return (
            f"The MCP server '{self.declaration.name}' says how to use its tools, {self.declaration.prefix}_…, in the "
            f"JSON string below. Its words hold for these tools only.\n{quote(self.instructions)}"
        )

    def list_conditions(self) -> tuple[str, ...]:
        """Return a line about its state, for example `files: ready, 4 tools`, and its notes."""
        name = self.declaration.name
        count = f"{self.state.tools} {'tool' if self.state.tools == 1 else 'tools'}"
        reason = f": {self.state.reason}" if self.state.reason else ""
        return (f"{name}: {self.state.status}, {count}{reason}", *(f"{name}: {note}" for note in self.state.notes))

    @asynccontextmanager
    async def lifespan(self, *, wait_seconds: float | None = None) -> AsyncIterator[None]:
        """Run the server. The context starts once it has tools, has failed, or after `wait_seconds`.

        The default is `FIRST_TOOLS_SECONDS`.
        """
        started_or_failed = asyncio.Event()
        scope = anyio.CancelScope()
        self.state = replace(self.state, status="starting", reason="")
        running = asyncio.create_task(self._run(started_or_failed, scope), name=f"mcp {self.declaration.name}")
        try:
            with anyio.move_on_after(FIRST_TOOLS_SECONDS if wait_seconds is None else wait_seconds):
                await started_or_failed.wait()
            yield
        finally:
            # Cancelled through the scope, because the task's own cancel() would interrupt the SDK while it ends the
            # process.
            scope.cancel()
            await asyncio.wait({running})
            await self._users.aclose()
            self._signals.renewed.set()
            self.state = replace(self.state, status="stopped", reason="")
            running.result()

    async def call(self, tool_name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run a tool at the server. Raises `ToolError`, also if the server does not run."""
        name = self.declaration.name
        if self.state.status == "sign-in" or self._users.is_open(context):
            return await (await self._users.connect(context)).call(tool_name, arguments, context)
        tool = self.find_tool(context.tool_name)
        fingerprint = tool and tool.fingerprint
        for _ in range(2):
            session = await self._wait_for_session()
            if not context.task_id and tool and tool.fingerprint != fingerprint:
                # The user may have allowed the call of the tool as it was before the new session.
                raise ToolError(
                    f"Not run: {context.tool_name} has changed, because the MCP server '{name}' has restarted. Call it "
                    "again if it still fits."
                )
            try:
                result = await session.call(tool_name, arguments, context)
            except NotSignedIn:
                if self._parent or self.declaration.oauth.is_own:
                    raise
                return await (await self._users.connect(context)).call(tool_name, arguments, context)
            except ForgottenSession:
                # Refused before it ran, so it is safe to repeat in a new session:
                # https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
                _log.info("mcp_session_forgotten", server=name, tool=tool_name[:MAX_NAME_CHARS])
            else:
                await self._await_new_tools(session, context)
                return result
        raise ToolError(f"The MCP server '{name}' refused the call twice: {FORGOTTEN}. The call was not carried out.")

    async def _await_new_tools(self, session: "Session", context: ToolContext) -> None:
        """Read the list of tools if the call has changed it, so that the model's next request has the new list."""
        from callboard.skills.mcp.connection import CONNECTION_ERRORS

        # Without the call's time limit, because its result would be lost.
        with suppress(*CONNECTION_ERRORS), context.clock.waiting(), anyio.move_on_after(FIRST_TOOLS_SECONDS):
            tools = session.client.server_capabilities.tools
            if self.declaration.url and tools and tools.list_changed and not self._signals.tools_changed:
                await anyio.sleep(REPORT_SECONDS)
            if self._session is session:
                await self._read_changed_tools(session)

    async def _wait_for_session(self) -> "Session":
        """Return the open session, after a forgotten one has been replaced. Raises `ToolError` if there is none."""
        with anyio.move_on_after(RENEW_SECONDS):
            await self._signals.renewed.wait()
        if self._session is None or self._signals.end_reason:
            raise ToolError(self._explain_absence())
        return self._session

    def _explain_absence(self) -> str:
        name = self.declaration.name
        match self.state.status:
            case "starting":
                return f"The MCP server '{name}' is still starting; try again in a few seconds."
            case "stopped":
                return f"The MCP server '{name}' does not run: its tools work only in a running Callboard server."
            case "ready" | "restarting" | "sign-in":
                seconds = max(1, math.ceil(self._next_start - time.monotonic()))
                return f"The MCP server '{name}' is being restarted; try again in {seconds} s."

    async def _run(self, started_or_failed: asyncio.Event, scope: anyio.CancelScope) -> None:
        """Open a connection again and again, until `scope` is cancelled."""
        pause = 0.0
        last_reason = ""
        with scope:
            while True:
                reason = await self._connect(started_or_failed)
                if self._signals.is_forgotten:
                    # Not a failure: the server answers, and a new session can be opened at once.
                    continue
                if self._ended_unready() and self.declaration.command:
                    # Servers with Rust's rmcp 1 end if the first message is not `initialize`, and `auto` begins with
                    # `server/discover`: https://github.com/dmtrKovalenko/fff/pull/798,
                    # https://github.com/0xMassi/webclaw/issues/107
                    self._mode = "auto" if self._mode == "legacy" else "legacy"
                    if self._mode == "legacy":
                        continue
                self._signals.renewed.set()
                if self._signals.sign_in_reason:
                    self.state = replace(self.state, status="sign-in", reason=self._signals.sign_in_reason)
                    _log.info("mcp_server_needs_sign_in", server=self.declaration.name, reason=self.state.reason)
                    started_or_failed.set()
                    await anyio.sleep_forever()
                worked = self._ready_since is not None
                stable = self._ready_since is not None and time.monotonic() - self._ready_since > STABLE_SECONDS
                pause = 2 * pause if pause and not stable else self._first_pause_seconds
                pause = min(pause, self._longest_pause_seconds)
                self._next_start = time.monotonic() + pause
                self.state = replace(self.state, status="restarting", reason=reason)
                started_or_failed.set()
                # Logged once for each reason, because a server that can never start would fill the log.
                log = _log.warning if worked or reason != last_reason else _log.debug
                log("mcp_server_lost", server=self.declaration.name, reason=reason, restart_seconds=pause)
                last_reason = reason
                await anyio.sleep(pause)

    async def _connect(self, started_or_failed: asyncio.Event) -> str:
        """Run one connection from its start to its end, and return the reason for its end."""
        # Imported here, because the SDK takes longer to import than all of Callboard.
        from callboard.skills.mcp.connection import CONNECTION_ERRORS, connect
        from callboard.skills.mcp.oauth import Authorization

        signals = self._signals
        if signals.auth is None and self.declaration.gets_tokens:
            signals.auth = Authorization(self.declaration, signals, self._sign_ins, self._user_id)
        signals.begin()
        self._ready_since = None
        try:
            async with connect(self.declaration, signals, self._mode) as session:
                await self._serve(session, started_or_failed)
        except (*CONNECTION_ERRORS, ExceptionGroup) as error:
            reason = clean_text(self.declaration.hide(_describe_error(error)))
            signals.end(reason)
            if self._ended_unready():
                return "it ended before it was ready; CALLBOARD_LOG_LEVEL=debug logs what it writes"
        finally:
            self._session = None
        return signals.end_reason or ENDED

    def _ended_unready(self) -> bool:
        """Return whether the latest connection ended without a reason before the server was ready."""
        return self._ready_since is None and self._signals.end_reason == ENDED

    async def _serve(self, session: "Session", started_or_failed: asyncio.Event) -> None:
        signals = self._signals
        pause = CHANGE_PAUSE_SECONDS
        read_at = time.monotonic()
        while not signals.end_reason:
            if signals.tools_changed:
                was_quiet = time.monotonic() - read_at > STABLE_SECONDS
                is_news = await self._read_changed_tools(session)
                started_or_failed.set()
                # Some servers report a change after each reading: https://github.com/microsoft/aspire/issues/14375
                pause = CHANGE_PAUSE_SECONDS if is_news or was_quiet else min(2 * pause, self._longest_pause_seconds)
                read_at = time.monotonic()
                if not is_news:
                    _log.debug("mcp_tools_unchanged", server=self.declaration.name, pause_seconds=pause)
            await signals.wait()
            if signals.tools_changed:
                with anyio.move_on_after(pause):
                    while not signals.end_reason:
                        await signals.wait()
        self.state = replace(self.state, status="restarting", reason=signals.end_reason)
        if signals.is_forgotten:
            # Parallel calls are being refused too, and calls to another replica may still be answered.
            with anyio.move_on_after(LAST_CALLS_SECONDS):
                while signals.awaits_answers:
                    await signals.wait()

    async def _read_changed_tools(self, session: "Session") -> bool:
        """Read the list of tools unless it is current, and return whether it has changed.

        If it cannot be read, it is read again later.
        """
        from mcp import MCPError

        from callboard.skills.mcp.session import means_lost_session

        async with self._reading:
            if not self._signals.tools_changed:
                return False
            self._signals.tools_changed = False
            try:
                return await self._read_tools(session)
            except BaseException as error:
                self._signals.change_tools()
                if not isinstance(error, MCPError) or self._session is None or means_lost_session(error):
                    raise
                # The tools of the last list and the running calls go on.
                reason = clean_text(self.declaration.hide(_describe_error(error)))
                _log.warning("mcp_tools_not_read", server=self.declaration.name, reason=reason)
                return False

    async def _read_tools(self, session: "Session") -> bool:
        """Read the list of tools, and return whether it has changed."""
        signals = self._signals
        signals.left_out.clear()
        listed = await session.list_tools()
        read = (listed, [*signals.left_out])
        if self.declaration.trusted:
            self.instructions = clean_text(self.declaration.hide(session.client.instructions or ""))
        if self._session is session and read == self._read:
            return False
        self._read = read
        self._offer(listed, signals.leave_out)
        if parent := self._parent:
            signals.asker = None
            parent.instructions = self.instructions
            parent._listed |= {tool.name: tool for tool in listed}
            parent._offer(parent._read[0], lambda *_: None)
        self._session = session
        signals.renewed.set()
        self._ready_since = self._ready_since or time.monotonic()
        self.state = McpState("ready", "", self.state.tool_names, self._write_notes(signals.left_out))
        for tool, reason in signals.left_out[:MAX_NOTES]:
            _log.warning("mcp_tool_left_out", server=self.declaration.name, tool=tool[:MAX_NAME_CHARS], reason=reason)
        _log.info("mcp_server_ready", server=self.declaration.name, tools=len(self._tools))
        return True

    def _offer(self, listed: "Sequence[McpTool]", leave_out: Callable[[str, str], None]) -> None:
        """Offer the tools of the latest list, and those that users have listed."""
        names = {tool.name for tool in listed}
        offered = [*listed, *(tool for tool in self._listed.values() if tool.name not in names)]
        self._tools = build_catalogue(self.declaration, offered, self.call, self.find_tool, leave_out)
        self.state = replace(self.state, tool_names=tuple(tool.name for tool in self._tools))

    def _make_connection(self, user_id: str, context: ToolContext) -> "RunningServer":
        """Return a connection of a user, which is not open. Their tokens are hidden in its texts only."""
        pauses = (self._first_pause_seconds, self._longest_pause_seconds)
        server = RunningServer(
            replace(self.declaration), *pauses, sign_ins=self._sign_ins, user_id=user_id, parent=self
        )
        server._signals.asker = context
        return server

    @cached_property
    def _sign_in_tool(self) -> Tool:
        async def sign_in(context: ToolContext) -> str:
            await self._users.connect(context)
            return f"Signed in. The tools can be used now: {', '.join(self.state.tool_names)}"

        name = self.declaration.name
        needed = f"Signs the user in to the MCP server {name}, whose tools are not known before."
        nothing = {"type": "object", "properties": {}}
        title = f"Sign in to {name}"[:MAX_TITLE_CHARS]
        return Tool(f"{self.declaration.prefix}_sign_in", needed, nothing, sign_in, title=title)

    def _write_notes(self, left_out: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        notes = [
            clean_text(self.declaration.hide(f"the tool {tool[:MAX_NAME_CHARS]} is left out: {reason}"))
            for tool, reason in left_out[:MAX_NOTES]
        ]
        if len(left_out) > MAX_NOTES:
            notes.append(f"{len(left_out) - MAX_NOTES} more tools are left out")
        if self.declaration.confirm == "unless_read_only" and not self.declaration.trusted:
            notes.append("all its tools need approval: the server is not trusted to mark tools that only read")
        return tuple(notes)


def _describe_error(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no command or folder '{error.filename}'"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
