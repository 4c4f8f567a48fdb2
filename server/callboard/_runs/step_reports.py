"""The steps that an agent reports of its calls, written and sent: as many of them as somebody can read."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from callboard._runs.forgiving_journal import ForgivingJournal
from callboard.calls.throttle import Throttle
from callboard.errors import RunLost
from callboard_protocol import ToolStatus


class StepReports:
    """Holds the steps of a call that come too fast; of those that wait the newest is left.

    `recording` is locked by whoever records an event. A step whose time comes meanwhile is written by them
    (`write_due`), and else at once. `send_and_write` sends an event and awaits what writes it down.
    """

    def __init__(
        self,
        journal: ForgivingJournal,
        send_and_write: Callable[[ToolStatus, Coroutine[Any, Any, None]], Awaitable[None]],
        recording: asyncio.Lock,
    ) -> None:
        self._journal = journal
        self._send_and_write = send_and_write
        self._recording = recording
        self._throttles: dict[str, Throttle[ToolStatus]] = {}
        self._due: list[ToolStatus] = []
        self._late_writing: asyncio.Future[None] | None = None

    def add(self, step: ToolStatus) -> None:
        """Take a step of an open call."""
        throttle = self._throttles.get(step.tool_call_id)
        if throttle is None:
            throttle = self._throttles[step.tool_call_id] = Throttle(self._let_through)
        throttle.put(step)

    async def write_due(self) -> None:
        """Write the steps whose time has come."""
        due = self._due
        self._due = []
        for step in due:
            data = step.data
            written = self._journal.call_progressed(step.tool_call_id, data.status, data.message, data.progress)
            await self._send_and_write(step, written)

    def hurry(self, tool_call_id: str) -> None:
        """Let what waits of a call be due."""
        if throttle := self._throttles.get(tool_call_id):
            throttle.flush()

    async def end(self, tool_call_id: str) -> None:
        """Write what waits of a call: it ends."""
        if throttle := self._throttles.pop(tool_call_id, None):
            throttle.flush()
        await self.write_due()

    def _let_through(self, step: ToolStatus) -> None:
        self._due.append(step)
        if not self._recording.locked():
            self._late_writing = asyncio.ensure_future(self._write_late())

    async def _write_late(self) -> None:
        # Where the run is lost, whatever is written next says so.
        with suppress(RunLost):
            async with self._recording:
                await self.write_due()
