"""What a running tool knows of its call, and how it says how far it is.

A report goes through the channel of one call: it is bound to that call before the tool
runs and shut when the call ends, so no tool can speak for another or after its end.
"""

import asyncio
import math
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field

from callboard.errors import ToolError
from callboard.redaction import Redaction
from callboard.tools.quotas import Quotas
from callboard.tools.services import Services
from callboard_protocol import User


@dataclass(frozen=True, slots=True)
class StatusReport:
    """One step of a running call; `progress` is a percentage from 0 to 100, None where it is not known."""

    status: str
    message: str = ""
    progress: float | None = None


class StatusChannel:
    """Carries the reports of one call to `sink`, always in the event loop that it was made in.

    Reports of other threads arrive in the order they were sent and before the end of the
    call. What is sent after `close` is dropped.
    """

    def __init__(self, sink: Callable[[StatusReport], None]) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._open = True

    def send(self, report: StatusReport) -> None:
        """Passes a report on; from any thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._deliver(report)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, report)

    def close(self) -> None:
        """Ends the call's say."""
        self._open = False

    def activate(self) -> Token["StatusChannel | None"]:
        """Makes this the channel of `report_status` in the current context."""
        return _current.set(self)

    def _deliver(self, report: StatusReport) -> None:
        if self._open:
            self._sink(report)


_current: ContextVar[StatusChannel | None] = ContextVar("callboard_status_channel", default=None)


class SourceNumbers:
    """Hands out the numbers of one turn's sources, after `last`, the highest in the history; −1 where there is none."""

    def __init__(self, last: int = -1) -> None:
        self._last = max(last, 0)

    def next(self) -> int:
        """A number that no source of the chat has."""
        self._last += 1
        return self._last


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the call that it serves.

    A parameter annotated with it is filled in by Callboard and is no argument of the tool.
    `chat_id` and `user` are None where the client did not say. Results that can be cited
    are a list of objects, each with a `source_number` from `sources.next()`.
    """

    tool_call_id: str
    tool_name: str
    chat_id: str | None
    user: User | None
    channel: StatusChannel = field(repr=False)
    sources: SourceNumbers = field(default_factory=SourceNumbers, repr=False)
    agent_id: str = ""
    lent: Services | None = field(default=None, repr=False)
    quotas: Quotas = field(default_factory=Quotas, repr=False)
    redaction: Redaction = field(default_factory=Redaction, repr=False)

    def secret(self, value: str) -> str:
        """Return `value`, which from here on is hidden in this run's cards, errors, store and log, and from its model.

        For what a tool learns while it runs: a token that it was lent, a key out of a file. Texts under six
        characters, and such as read like a word or a number, are too common to be hidden.
        """
        self.redaction.add(value)
        return value

    @property
    def services(self) -> Services:
        """What the server lends to its own tools. Raises `ToolError` where no server runs the tool."""
        if self.lent is None:
            raise ToolError(f"{self.tool_name} works in a Callboard server alone: start one with callboard serve.")
        return self.lent

    @property
    def user_id(self) -> str:
        """Whose data the tool may see. Raises `ToolError` where the client did not say who asks."""
        if self.user is None:
            raise ToolError(f"{self.tool_name} keeps what it knows per user, and this request names no user.")
        return self.user.id

    async def status(self, status: str, message: str = "", *, progress: float | None = None) -> None:
        """Shows how far this call is: `status` one word (`processing`), `progress` 0 to 100.

        Ignored once the call has ended.
        """
        self.channel.send(_report(status, message, progress))
        # Lets the report out even where the tool awaits nothing else.
        await asyncio.sleep(0)


def report_status(status: str, message: str = "", progress: float | None = None) -> None:
    """`ToolContext.status` for tools without a context and for those that run in threads.

    Does nothing outside a tool call.
    """
    if (channel := _current.get()) is not None:
        channel.send(_report(status, message, progress))


def _report(status: str, message: str, progress: float | None) -> StatusReport:
    if progress is not None:
        progress = min(100.0, max(0.0, float(progress))) if math.isfinite(progress) else None
    return StatusReport(str(status), str(message), progress)
