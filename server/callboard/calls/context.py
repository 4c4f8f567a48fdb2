"""The context of a running tool: what it knows of its call, and how it says how far it is.

A report goes through the channel of one call: it is bound to that call before the tool
runs and shut when the call ends, so no tool can speak for another or after its end.
"""

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from callboard._redaction import Redaction
from callboard.calls.throttle import AT_ONCE, Throttle
from callboard.errors import ToolCancelled, ToolError
from callboard_protocol import User

if TYPE_CHECKING:
    # An agent's file imports this module, and should not wait for a database library to be imported.
    from callboard.models import ChatModel
    from callboard.storage import Store


@dataclass(frozen=True, slots=True)
class StatusReport:
    """One step of a running call, made at `at`, in seconds since the epoch.

    `progress` is a percentage from 0 to 100, None if it is not known.
    """

    status: str
    message: str = ""
    progress: float | None = None
    at: float = field(default_factory=time.time, compare=False)


class StatusChannel:
    """Channel that carries the reports of one call to `sink`, always in the event loop that it was made in.

    Reports of other threads arrive in the order they were sent and before the end of the call; of
    more than a `Throttle` lets through, the newest do. What is sent after `close` is dropped;
    after `cancel` who sends is told by an exception.
    """

    def __init__(self, sink: Callable[[StatusReport], None]) -> None:
        self._reports = Throttle(sink)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._sending = threading.Lock()
        self._sent: list[StatusReport] = []
        self.cancelled = False
        """True where nobody waits for the call any more."""
        self.left_running = False
        """True where the tool was still at work when the call was given up."""

    def send(self, report: StatusReport) -> None:
        """Pass a report on; from any thread. Raises `ToolCancelled` where nobody waits for the call any more."""
        if self.cancelled:
            raise ToolCancelled("Nobody waits for this call any more: it was stopped, or is out of time.")
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._deliver()
            self._pass_on(report)
        elif not self._loop.is_closed():
            self._send_from_thread(report)

    def cancel(self) -> None:
        """Tell the tool to end: nobody waits for the call any more."""
        self.cancelled = True

    def close(self) -> None:
        """End the call's say."""
        if self._open:
            self._deliver()
            self._reports.flush()
        self._open = False

    def activate(self) -> Token["StatusChannel | None"]:
        """Make this the channel of `report_status` in the current context."""
        return _current.set(self)

    def _send_from_thread(self, report: StatusReport) -> None:
        with self._sending:
            is_first = not self._sent
            # A thread may be faster than the loop: it is to wake it once, and to hold no more than is shown.
            if len(self._sent) == AT_ONCE:
                self._sent.pop()
            self._sent.append(report)
        if is_first:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Pass on what other threads have sent."""
        with self._sending:
            sent = self._sent
            self._sent = []
        for report in sent:
            self._pass_on(report)

    def _pass_on(self, report: StatusReport) -> None:
        if self._open:
            self._reports.put(report)


_current: ContextVar[StatusChannel | None] = ContextVar("callboard_status_channel", default=None)


class SourceNumbers:
    """Numbers of one turn's sources, after `last`, the highest in the history; −1 where there is none."""

    def __init__(self, last: int = -1) -> None:
        self._last = max(last, 0)

    def next(self) -> int:
        """Return a number that no source of the chat has."""
        self._last += 1
        return self._last


class Quotas:
    """Quotas that tools set themselves over a whole turn, such as how many changes it may make to a house."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, quota: str, number: int, most: int) -> bool:
        """Take `number` more; False where that would be more than `most` in the turn, and then take none."""
        if self._taken[quota] + number > most:
            return False
        self._taken[quota] += number
        return True

    def correct(self, quota: str, difference: int) -> None:
        """Count what was taken as so many more, or fewer, once it is known how many they were."""
        self._taken[quota] = max(0, self._taken[quota] + difference)


@dataclass(frozen=True, slots=True)
class Services:
    """The services that a running application lends: to a skill's lifespan, to a tool as `ToolContext.services`.

    `model` is the application's default model. What `redaction` knows as secret, no log, event or row
    holds. What a skill needs besides, it was made with.
    """

    store: "Store"
    model: "ChatModel"
    redaction: Redaction = field(default_factory=Redaction, repr=False)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a tool: what it may know about the call that it serves.

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
    def cancelled(self) -> bool:
        """Return whether nobody waits for the call any more: the user pressed stop, or its time is over.

        A plain function runs in a thread, which nothing can end from outside: one that takes long looks here, and
        its next report raises `ToolCancelled`.
        """
        return self.channel.cancelled

    @property
    def services(self) -> Services:
        """Return what the server lends to its own tools. Raises `ToolError` where no server runs the tool."""
        if self.lent is None:
            raise ToolError(f"{self.tool_name} works in a Callboard server alone: start one with callboard serve.")
        return self.lent

    @property
    def user_id(self) -> str:
        """The user whose data the tool may see. Raises `ToolError` where the client did not say who asks."""
        if self.user is None:
            raise ToolError(f"{self.tool_name} keeps what it knows per user, and this request names no user.")
        return self.user.id

    async def status(self, status: str, message: str = "", *, progress: float | None = None) -> None:
        """Show how far this call is: `status` one word (`processing`), `progress` 0 to 100.

        Of more than ten a second the newest are shown. Ignored once the call has ended; raises
        `ToolCancelled` where it was stopped.
        """
        self.channel.send(_report(status, message, progress))
        # Lets the report out even where the tool awaits nothing else.
        await asyncio.sleep(0)


def report_status(status: str, message: str = "", progress: float | None = None) -> None:
    """Report as `ToolContext.status` does, for tools without a context and for those that run in threads.

    Does nothing outside a tool call. Raises `ToolCancelled` where the call was stopped, which ends a
    function in its thread.
    """
    if (channel := _current.get()) is not None:
        channel.send(_report(status, message, progress))


def _report(status: str, message: str, progress: float | None) -> StatusReport:
    if progress is not None:
        progress = min(100.0, max(0.0, float(progress))) if math.isfinite(progress) else None
    return StatusReport(str(status), str(message), progress)
