"""The context of a running tool: facts about its call, and a way to report progress.

A report goes through the channel of its call. The channel is made before the tool runs and closed when the call ends,
so a tool cannot report for another call or after its end.
"""

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from callboard.calls.throttle import AT_ONCE, Throttle
from callboard.errors import ToolCancelled, ToolError
from callboard.redaction import Redaction
from callboard_protocol import InputRequest, User

if TYPE_CHECKING:
    # Not at run time: the file of an agent imports this module, and must not load a database library.
    from callboard.calls.sign_ins import SignIns
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
    """Passes the reports of one call to `sink`, always in the event loop in which the channel was made.

    Reports of other threads arrive in order and before the end of the call. A `Throttle` drops some of many reports.
    Reports after `close` are dropped; a report after `cancel` raises an exception.
    """

    def __init__(self, sink: Callable[[StatusReport], None]) -> None:
        self._reports = Throttle(sink)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._sending = threading.Lock()
        self._sent: list[StatusReport] = []
        self.cancelled = False
        """Whether the call was stopped or is out of time."""
        self.left_running = False
        """Whether the tool was still running when the call ended."""

    def send(self, report: StatusReport) -> None:
        """Pass on a report, from any thread. Raises `ToolCancelled` if the call was stopped or is out of time."""
        if self.cancelled:
            raise ToolCancelled("This call was stopped or is out of time: its result is not used any more.")
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
        """Make the next report of the tool raise `ToolCancelled`."""
        self.cancelled = True

    def close(self) -> None:
        """Pass on the reports that wait, and drop all later ones."""
        if self._open:
            self._deliver()
            self._reports.flush()
        self._open = False

    def activate(self) -> Token["StatusChannel | None"]:
        """Make `report_status` use this channel in the current context."""
        return _current.set(self)

    def _send_from_thread(self, report: StatusReport) -> None:
        with self._sending:
            is_first = not self._sent
            # A thread may be faster than the loop: wake the loop once, and keep no more reports than are shown.
            if len(self._sent) == AT_ONCE:
                self._sent.pop()
            self._sent.append(report)
        if is_first:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        """Pass on the reports of other threads."""
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
    """Numbers the sources of one turn. `last` is the highest number in the chat's history, −1 if there is none."""

    def __init__(self, last: int = -1) -> None:
        self._last = max(last, 0)

    def next(self) -> int:
        """Return the next number, which no source of the chat has."""
        self._last += 1
        return self._last


class Quotas:
    """Counts that tools limit over a whole turn, for example the changes to devices of a house."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, quota: str, number: int, most: int) -> bool:
        """Take `number` more and return True; take none and return False if the turn would have more than `most`."""
        if self._taken[quota] + number > most:
            return False
        self._taken[quota] += number
        return True

    def correct(self, quota: str, difference: int) -> None:
        """Change the count by `difference`, when the real number is known."""
        self._taken[quota] = max(0, self._taken[quota] + difference)


class CallClock:
    """Measures and limits the time of a call, without the time in which its user is asked."""

    def __init__(self) -> None:
        self._open_questions = 0
        self._waited_seconds = self._stopped_at_seconds = 0.0
        self._ends: dict[asyncio.Timeout, float] = {}
        self.restart()

    def restart(self) -> None:
        """Measure from now on; limits stay as they are."""
        self._began_at_seconds = self._now()

    @property
    def elapsed_ms(self) -> int:
        """The time so far, in milliseconds."""
        return round((self._now() - self._began_at_seconds) * 1000)

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the time of the block, as `asyncio.timeout` does."""
        async with asyncio.timeout(None) as timeout:
            self._ends[timeout] = self._now() + seconds
            self._schedule()
            try:
                yield timeout
            finally:
                del self._ends[timeout]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the clock inside the context, because the user is asked. Contexts may overlap."""
        self._stopped_at_seconds = self._now()
        self._open_questions += 1
        self._schedule()
        try:
            yield
        finally:
            self._open_questions -= 1
            if not self._open_questions:
                self._waited_seconds = time.monotonic() - self._stopped_at_seconds
            self._schedule()

    def _now(self) -> float:
        return self._stopped_at_seconds if self._open_questions else time.monotonic() - self._waited_seconds

    def _schedule(self) -> None:
        for timeout, end in self._ends.items():
            if not timeout.expired():
                when = asyncio.get_running_loop().time() + end - self._now()
                timeout.reschedule(None if self._open_questions else when)


async def do_nothing(_: object) -> None:
    """Return None, the default if there is no run to store a task for, or no user to ask."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the running application that skills and tools may use.

    A skill's lifespan gets them, and a tool has them as `ToolContext.services`. `model` is the application's default
    model. Secrets that are added to `redaction` are removed from logs, events and rows. `sign_ins` are those of users
    at other services, None outside of a server.
    """

    store: "Store"
    model: "ChatModel"
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    sign_ins: "SignIns | None" = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that a tool runs for: its id, chat and user, and a way to report progress.

    Callboard fills in a parameter with this annotation; it is not an argument of the tool. `chat_id` and `user` are
    None if the client did not send them. A result that can be cited is a list of objects, each with a `source_number`
    from `sources.next()`.

    A tool that starts a task at another service may store the task's id: `await context.keep_task(id)`. If another
    server continues the run, it calls the tool of an `Agent` again, with this `task_id`, which is empty otherwise. When
    such a tool is cancelled, it cancels its task unless `is_left()`: then another server calls it again.
    """

    tool_call_id: str
    tool_name: str
    chat_id: str | None
    user: User | None
    channel: StatusChannel = field(repr=False)
    sources: SourceNumbers = field(default_factory=SourceNumbers, repr=False)
    agent_id: str = ""
    given_services: Services | None = field(default=None, repr=False)
    quotas: Quotas = field(default_factory=Quotas, repr=False)
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    send_question: Callable[[InputRequest], Awaitable[Any]] = field(default=do_nothing, repr=False)
    clock: CallClock = field(default_factory=CallClock, repr=False)
    keep_task: Callable[[str], Awaitable[None]] = field(default=do_nothing, repr=False)
    task_id: str = ""
    is_left: Callable[[], bool] = field(default=lambda: False, repr=False)
    _question_numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False, repr=False)

    def secret(self, value: str) -> str:
        """Return `value`, and hide it from now on: in the run's cards, errors, rows and logs, and from its model.

        For secrets that a tool gets while it runs, for example a token or a key from a file. Texts under six
        characters and texts that look like a word or a number are too common to be hidden.
        """
        self.redaction.add(value)
        return value

    @property
    def cancelled(self) -> bool:
        """Whether the user stopped the call, or its time is over.

        A plain function runs in a thread, which cannot be stopped from outside. A function that takes long should
        check this; its next report raises `ToolCancelled`.
        """
        return self.channel.cancelled

    @property
    def services(self) -> Services:
        """The services of the server. Raises `ToolError` if the tool does not run in a server."""
        if self.given_services is None:
            raise ToolError(f"{self.tool_name} works only in a Callboard server: start one with callboard serve.")
        return self.given_services

    @property
    def user_id(self) -> str:
        """The id of the user whose data the tool may see. Raises `ToolError` if the client named no user."""
        if self.user is None:
            raise ToolError(f"{self.tool_name} stores data for each user, and this request names no user.")
        return self.user.id

    async def status(self, status: str, message: str = "", *, progress: float | None = None) -> None:
        """Report the progress of this call: `status` is one word (`processing`), `progress` is 0 to 100.

        At most ten reports a second are shown, the newest ones. A report after the end of the call is ignored. Raises
        `ToolCancelled` if the call was stopped.
        """
        self.channel.send(_report(status, message, progress))
        # Sends the report even if the tool awaits nothing else.
        await asyncio.sleep(0)

    async def ask(
        self,
        message: str,
        *,
        title: str = "",
        schema: Mapping[str, Any] | None = None,
        choices: Sequence[str] = (),
        url: str = "",
        timeout_seconds: float | None = None,
    ) -> Any:
        """Ask the user in the middle of the call, and return the answer; None if there is none.

        The time of the question does not count against the call's time limit. An answer that does not fit is asked for
        again, with the reason.

        Args:
            message: The question.
            title: The heading of the question. Default: the name of the tool.
            schema: The JSON schema of a form: an object whose fields are texts, numbers, booleans or choices. The
                answer is then an object; False if the user declines.
            choices: The possible answers.
            url: An address (http or https) that the user is asked to open. The answer is then True or False.
            timeout_seconds: How long to wait. Default: `CALLBOARD_INPUT_TIMEOUT_SECONDS`.

        Raises `ValueError` if the schema is not flat, or the address is no web address, and `ToolError` if the
        user answers again and again, and no answer fits.
        """
        number = next(self._question_numbers)
        question = InputRequest(
            # The same after a takeover, so that an answer still counts.
            request_id=f"ask:{self.tool_call_id}:{number}",
            kind="form" if schema is not None else "confirmation" if url else "input",
            title=title or f"{self.tool_name} asks",
            message=message,
            schema=dict(schema or {}),
            choices=tuple(choices),
            url=url,
            tool_call_id=self.tool_call_id,
            timeout_seconds=timeout_seconds,
        )
        return await self.send_question(question)


def report_status(status: str, message: str = "", progress: float | None = None) -> None:
    """Report progress like `ToolContext.status`, from a tool without a context or from a thread.

    Does nothing outside a tool call. Raises `ToolCancelled` if the call was stopped, which ends a function in its
    thread.
    """
    if (channel := _current.get()) is not None:
        channel.send(_report(status, message, progress))


def _report(status: str, message: str, progress: float | None) -> StatusReport:
    if progress is not None:
        progress = min(100.0, max(0.0, float(progress))) if math.isfinite(progress) else None
    return StatusReport(str(status), str(message), progress)
