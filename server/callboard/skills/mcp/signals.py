"""Signals from a connection to the task that runs it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import anyio

from callboard.calls import ToolContext
from callboard.errors import ToolError

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

    from callboard.skills.mcp.oauth import Authorization

ENDED = "it ended"
"""The reason for the end of a connection if nothing else is known."""

FORGOTTEN = "it no longer knows the session"


class ForgottenSession(Exception):
    """The server refused a call before it ran, because it no longer knows the call's session."""


class NotSignedIn(ToolError):
    """The server refused a call before it ran, because there is no token for it."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"Not run: the MCP server '{server}' demands a sign-in: {reason}.")


MAX_REPORTS = 200
"""The limit of progress reports of a call. Each is an event and a row in the database."""

MAX_REPORT_CHARS = 500


@dataclass(eq=False, slots=True)
class SentCall:
    """A call that the server has not answered yet."""

    context: ToolContext
    is_refused: bool = False
    """The server did not run the call, because it no longer knows the session."""
    has_session: bool = False
    """The server has answered the call's HTTP request, which named a session."""
    http_error: str = ""
    """The unsuccessful HTTP status that answered this call alone, for example `HTTP 429 Too Many Requests`."""
    sign_in_reason: str = ""
    """Why there is no token for the call, which the server refused."""
    stray_error: str = ""
    """An error of the server that names no request, while this was the only call."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Cancelled if the server cannot answer the call any more."""
    _reports: Iterator[int] = field(default_factory=lambda: count(1))

    async def report(self, message: str, percent: float | None = None) -> None:
        """Report progress as a status of the call, up to `MAX_REPORTS` times."""
        if next(self._reports) <= MAX_REPORTS:
            await self.context.status("processing", message[:MAX_REPORT_CHARS], progress=percent)


sent_call: ContextVar[SentCall | None] = ContextVar("callboard_mcp_sent_call", default=None)
"""The call to which an HTTP request belongs. The SDK sends each request in its caller's context."""


@dataclass(slots=True)
class Signals:
    """The state of a connection, set from anywhere in the event loop. `wake` is set with every change."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    tools_changed: bool = True
    end_reason: str = ""
    open_calls: set[SentCall] = field(default_factory=set)
    is_forgotten: bool = False
    renewed: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while the server has forgotten the session, and set once a new session is open or cannot be opened."""

    auth: "Authorization | None" = None
    """Adds tokens to the connection's requests over HTTP."""

    asker: ToolContext | None = None
    """The call for which the connection is opened."""

    sign_in_reason: str = ""
    """Why there is no token for a request that belongs to no call; "" if none was missing."""

    has_resources: bool = False
    """Whether the server has listed a resource, or a result had a link to one."""

    session: "ClientSession | None" = None
    """The latest connection, which a call that follows a task uses after the end of its own; None while it opens."""

    left_out: list[tuple[str, str]] = field(default_factory=list)
    """The tools of the latest list that cannot be used, with the reasons."""

    def __post_init__(self) -> None:
        self.renewed.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self.wake.wait()
        self.wake.clear()

    def change_tools(self) -> None:
        """Request that the server's list of tools is read again."""
        self.tools_changed = True
        self.wake.set()

    def leave_out(self, tool_name: str, reason: str) -> None:
        """Record that a tool of the server's list cannot be used."""
        self.left_out.append((tool_name, reason))

    def end(self, reason: str) -> None:
        """Mark the connection as unusable. The first reason is kept."""
        self.end_reason = self.end_reason or reason
        self.wake.set()

    def forget(self, refused: SentCall) -> None:
        """Mark the session of a refused call as forgotten by the server, so that a new one is opened at once."""
        refused.is_refused = self.is_forgotten = True
        self.renewed.clear()
        self.end(FORGOTTEN)

    def fail_only_call(self, message: str) -> None:
        """End the open call with an error whose id is null, if it is the only one. Others wait for their time limit."""
        if len(self.open_calls) == 1:
            [sent] = self.open_calls
            sent.stray_error = message or "without a reason"
            sent.scope.cancel()

    @contextmanager
    def calling(self, context: ToolContext) -> Iterator[SentCall]:
        """Return a context whose requests belong to the yielded call."""
        sent = SentCall(context)
        token = sent_call.set(sent)
        self.open_calls.add(sent)
        try:
            yield sent
        finally:
            sent_call.reset(token)
            self.open_calls.discard(sent)
            self.wake.set()

    def find_asking_call(self) -> ToolContext | None:
        """Return the call that a request of the server belongs to; None if it may be a call of another user.

        Over HTTP the request arrives in the context of its call. Otherwise it belongs to one of the open calls.
        """
        sent = sent_call.get()
        if sent is not None and sent in self.open_calls:
            return sent.context
        contexts = [call.context for call in self.open_calls]
        users = {(context.user and context.user.id, context.chat_id) for context in contexts}
        return contexts[0] if len(users) == 1 else None

    @property
    def awaits_answers(self) -> bool:
        """Return whether the server may still answer any call."""
        return not all(call.is_refused for call in self.open_calls)

    def begin(self) -> None:
        """Reset the state for a new connection."""
        self.session = None
        self.tools_changed = True
        self.is_forgotten = False
        self.end_reason = ""
