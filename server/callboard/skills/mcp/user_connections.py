"""The connections to a server to which each user signs in: one connection per user, opened by the user's first call."""

import asyncio
import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import Context
from typing import TYPE_CHECKING

from callboard.calls import ToolContext
from callboard.errors import ToolError
from callboard.skills.mcp.signals import NotSignedIn

if TYPE_CHECKING:
    from callboard.skills.mcp.server import RunningServer

MAX_CONNECTIONS = 200
"""The most open connections to one server. A further connection closes the least recently used."""


class UserConnections:
    """The users' connections to the server with this name. `make` returns a new connection for a user id."""

    def __init__(self, name: str, make: "Callable[[str, ToolContext], RunningServer]") -> None:
        self._name = name
        self._make = make
        self._open: dict[str, tuple[RunningServer, AsyncExitStack]] = {}
        """Those that were used last come last."""
        self._starting: dict[str, asyncio.Task[RunningServer]] = {}

    async def connect(self, context: ToolContext) -> "RunningServer":
        """Return the connection of the call's user, who is asked to sign in if needed. Raises `ToolError`."""
        if context.user is None:
            raise NotSignedIn(self._name, "each user signs in for themselves, and this request names no user")
        user_id = context.user.id
        if self.is_open(context):
            self._open[user_id] = self._open.pop(user_id)
            return self._open[user_id][0]
        if (starting := self._starting.get(user_id)) is None:
            starting = self._starting[user_id] = asyncio.create_task(
                self._start(user_id, context),
                # Log lines of the connection do not belong to the run that opened it.
                context=Context(),
            )
            try:
                return await starting
            finally:
                del self._starting[user_id]
        # Another call of the user asks them. It may be stopped.
        await asyncio.wait({starting})
        if starting.cancelled():
            raise NotSignedIn(self._name, "the user stopped the call that asked them")
        return starting.result()

    def is_open(self, context: ToolContext) -> bool:
        """Return whether the call's user has a connection for which they need not sign in first."""
        opened = self._open.get(context.user.id) if context.user else None
        return opened is not None and opened[0].state.status != "sign-in"

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*map(self._close, [*self._open]))

    async def _start(self, user_id: str, context: ToolContext) -> "RunningServer":
        await self._close(user_id)
        idle = [one for one, (server, _) in self._open.items() if server.is_idle]
        for other in idle[: max(0, len(self._open) + 1 - MAX_CONNECTIONS)]:
            await self._close(other)
        server = self._make(user_id, context)
        async with AsyncExitStack() as closing:
            await closing.enter_async_context(server.lifespan(wait_seconds=math.inf))
            if server.state.status != "ready":
                if server.state.status == "sign-in":
                    raise NotSignedIn(self._name, server.state.reason)
                raise ToolError(f"Not run: the MCP server '{self._name}' cannot be reached: {server.state.reason}.")
            self._open[user_id] = (server, closing.pop_all())
        return server

    async def _close(self, user_id: str) -> None:
        if opened := self._open.pop(user_id, None):
            await opened[1].aclose()
