"""One run: the tasks that run its agent and end it, and its listeners.

One task consumes the agent's events. A second task, the supervisor, waits for the first and ends the run. Only the end
of the program cancels the supervisor, so every run ends its open calls and sends its last event, unless another server
continues it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import structlog

from callboard._streams import closing_stream
from callboard.agents import AgentLike
from callboard.agents.context import TurnContext
from callboard.data_urls import Data
from callboard.errors import CallboardError, ModelRefused, RunLost, RunTimeout, StorageError, UnknownInput
from callboard.redaction import Redaction, current_redaction
from callboard.runs.consent_guard import ConsentGuard
from callboard.runs.files import RunFiles, read_file
from callboard.runs.inputs import Inputs, unknown_input
from callboard.runs.log import EventLog
from callboard.runs.recorder import Ending, Recorder
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import GivenAnswer
from callboard_protocol import Done, Error, Event, TextEvent, ToolCallStart

MAX_TEXT_CHARS = 8 * 1024 * 1024
"""The most characters of text, reasoning and arguments of one run; stops models that never end."""

CANCEL_PATIENCE_SECONDS = 5
"""How long a cancelled agent may clean up before the run ends without it, in seconds."""

CANCELLED = Ending(Done(finish_reason="cancelled"), "cancelled", "The run was cancelled before this call ended.")
SHUTTING_DOWN = "The server is shutting down: send the message again when it is back."
INTERRUPTED = Ending(
    Error(message=SHUTTING_DOWN, code="interrupted"),
    "interrupted",
    "The server was shut down before this call ended.",
)
CANNOT_WAIT = Ending(
    Error(
        message="The database failed, so the calls cannot wait for approval: send the message again.", code="storage"
    ),
    "not_asked",
    "Not run: the user could not be asked, and the database failed, so the call cannot wait. Do not try again: tell "
    "the user what was not done.",
)
FAILED = Ending(
    Error(message="The server failed at the end of this run; its log says why.", code=CallboardError.code),
    "interrupted",
    "The server failed before this call ended.",
)
TOO_LONG = Ending(Done(finish_reason="length"), "interrupted", "The answer was too long before this call ended.")

_log = structlog.get_logger(__name__)


class RunIdentity(NamedTuple):
    """The agent, chat, message and user of a run; a request with the same run id must have the same values."""

    agent_id: str
    chat_id: str | None
    message_id: str | None
    user_id: str | None

    def may_be_seen_by(self, user_id: str | None) -> bool:
        """Return whether the user may access the run; a run without a user is accessible to all."""
        return self.user_id in (None, user_id)


class Run:
    """A run of this server: one agent that answers one request."""

    def __init__(
        self,
        run_id: str,
        identity: RunIdentity,
        log: EventLog,
        recorder: Recorder,
        inputs: Inputs,
        files: RunFiles,
        grace_seconds: float,
        stored_runs: StoredRuns | None = None,
        *,
        can_be_continued: bool = False,
        ignored: Sequence[str] = (),
    ) -> None:
        self.run_id = run_id
        self._stored_runs = stored_runs
        self.identity = identity
        self.log = log
        self.ignored = ignored
        """The names of the client's functions that the agent cannot call, and of options that it ignores."""
        self.can_be_continued = can_be_continued
        """True if another server can continue the run when this one stops."""
        self.last_event: Done | Error | None = None
        """The last event after the end of the run; None if another server continues the run."""
        self.inputs = inputs
        self.files = files
        self._recorder = recorder
        self._grace_seconds = grace_seconds
        self._listeners = 0
        self.on_unread: Callable[[], None] = lambda: None
        """Called when the last listener leaves."""
        self.readers = 0
        """The number of listeners that are reading the log; `listening` also counts those that do not read yet."""
        self._grace_timer: asyncio.TimerHandle | None = None
        # The event loop has only weak references to tasks:
        # https://docs.python.org/3/library/asyncio-task.html#asyncio.create_task
        self._cancelling: asyncio.Task[None] | None = None
        self._agent_task: asyncio.Task[None] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._stop_requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending: Ending | None = None
        self._needs_listeners = True
        self._timeout: asyncio.TimerHandle | None = None

    def start(
        self,
        agent: AgentLike,
        prepare: Callable[[], Awaitable[TurnContext]],
        redaction: Redaction,
        on_end: Callable[["Run"], None],
        timeout_seconds: float,
        age_seconds: float = 0.0,
        needs_listeners: bool = True,
    ) -> None:
        """Start the agent.

        `prepare` stores the question and returns the agent's context. `on_end` is called when the run has ended, or
        another server continues it. The run is ended after `timeout_seconds`, of which `age_seconds` have passed on
        earlier servers. Without `needs_listeners` it goes on if nobody listens.
        """
        self._needs_listeners = needs_listeners
        self._agent_task = asyncio.create_task(self._run_agent(agent, prepare, redaction), name=f"run {self.run_id}")
        self._supervisor = asyncio.create_task(
            self._supervise(self._agent_task, redaction, on_end), name=f"run {self.run_id} until its end"
        )
        self._timeout = asyncio.get_running_loop().call_later(
            timeout_seconds - age_seconds, self._end_on_timeout, timeout_seconds
        )
        self._await_listeners()

    @property
    def ended(self) -> bool:
        """Whether the last event is in the log, or another server continues the run."""
        return self.log.closed

    async def is_listened_to(self) -> bool:
        """Return whether the run has a listener on any server; True if the database cannot be read."""
        if self._listeners or self._stored_runs is None or not self.log.is_stored:
            return self._listeners > 0
        try:
            return await self._stored_runs.is_listened_to(self.run_id)
        except StorageError:
            return True

    def check(self, after: int) -> None:
        """Raise `LogExpired` if the event after `after` has been dropped."""
        self.log.check(after)

    def cancel(self, ending: Ending = CANCELLED) -> None:
        """End the run, unless it has ended or is about to end."""
        if self._ending is None and not self.log.is_leaving and self._agent_task and not self._agent_task.done():
            self._ending = ending
            self._stop_agent()

    def leave(self) -> None:
        """Stop the run without ending it, so that another server can continue it, unless it is about to end."""
        if self._ending is None and self._agent_task and not self._agent_task.done():
            self.log.is_leaving = True
            self._stop_agent()

    def lose(self) -> None:
        """Stop the run without ending it: another server has taken it over. Listeners reconnect there."""
        # First the log: it may have a last event that is not stored and that no listener has seen.
        self.log.leave()
        self._stop_agent()

    def _stop_agent(self) -> None:
        if self._agent_task and not self._stop_requested.done():
            self._agent_task.cancel()
            self._stop_requested.set_result(None)

    async def cancel_for_client(self) -> None:
        """Cancel the run for a client, also on a server that takes it over later.

        Raises `StorageError` if another server may take the run over and would not learn of this.
        """
        # First, because the database may be slow.
        self.cancel()
        if self._stored_runs and self.log.is_stored and not self.ended:
            try:
                await self._stored_runs.cancel(self.run_id)
            except StorageError:
                if not await self._stored_runs.is_alone():
                    raise

    async def answer(self, request_id: str, answer: GivenAnswer) -> None:
        """Answer a question.

        Raises `UnknownInput` if it is not open, or already answered on any server, and `StorageError` if another server
        may take the run over and would not learn of the answer.
        """
        if self.last_event:
            raise unknown_input(request_id)
        await self.inputs.answer(request_id, answer)

    async def add_message(self, content: str) -> str:
        """Accept a message of the user for the model; see `Inputs.add_message`."""
        return await self.inputs.add_message(content)

    async def file(self, file_id: str) -> Data:
        """Return a file that an event links to. Raises `UnknownFile`, `StorageError`."""
        return read_file(self.run_id, file_id, await self._find_file(file_id))

    async def inline(self, file: Mapping[str, Any]) -> dict[str, Any]:
        """Return a file of an event with its content as a `data:` URL. Raises `StorageError`."""
        url = file.get("url")
        return {**file, "url": await self._find_file(str(url).rpartition("/")[2]) or url}

    async def _find_file(self, file_id: str) -> str | None:
        url = self.files.find(file_id)
        if url is None and self._stored_runs:
            return await self._stored_runs.file(self.run_id, file_id)
        return url

    async def wait(self) -> None:
        """Wait for the end of the run."""
        if self._supervisor:
            await asyncio.shield(self._supervisor)

    async def listen(self, after: int = 0) -> AsyncIterator[bytes]:
        """Yield the frames after event `after`. A run with a listener is not cancelled."""
        with self.listening(), self._reading():
            async for chunk in self.log.tail(after):
                yield chunk

    async def events(self) -> AsyncIterator[Event]:
        """Yield all events of the run, for a listener in this process."""
        with self.listening(), self._reading():
            async for event in self.log.events():
                yield event

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Count a listener until the block ends. A run with a listener is not cancelled."""
        self._listeners += 1
        if self._grace_timer:
            self._grace_timer.cancel()
            self._grace_timer = None
        try:
            yield
        finally:
            # No await here: after a disconnect the task is being cancelled.
            self._listeners -= 1
            if not self._listeners:
                self._await_listeners()
                self.on_unread()

    def drop_unread_log(self) -> None:
        """Drop the log if the run has no listener, because reference cycles keep the run in memory for a while."""
        if not self._listeners:
            self.log.drop()

    def _await_listeners(self) -> None:
        if not self.ended and self._needs_listeners:
            self._grace_timer = asyncio.get_running_loop().call_later(self._grace_seconds, self._consider_cancelling)

    def _consider_cancelling(self) -> None:
        if not self.ended:
            self._cancelling = asyncio.create_task(self._cancel_unheard(), name=f"cancel {self.run_id}")

    async def _cancel_unheard(self) -> None:
        """Cancel the run, unless it has a listener on any server."""
        is_listened_to = await self.is_listened_to()
        if self._listeners:
            return
        asked = self.inputs.list_asked_approvals()
        if is_listened_to or self.inputs.waiting or asked:
            self._await_listeners()
            if not is_listened_to:
                # As a client does that cannot ask its user: approvals that can wait then wait.
                for request_id in asked:
                    with suppress(UnknownInput, StorageError):
                        await self.answer(request_id, GivenAnswer(None, asked=False))
            return
        _log.info("run_given_up", run_id=self.run_id, after_seconds=self._grace_seconds)
        self.cancel()

    def _end_on_timeout(self, timeout_seconds: float) -> None:
        message = f"The run took longer than {timeout_seconds:g} s (CALLBOARD_RUN_TIMEOUT_SECONDS), and was ended."
        self.cancel(Ending(Error(message=message, code=RunTimeout.code), "interrupted", message))

    async def _run_agent(
        self, agent: AgentLike, prepare: Callable[[], Awaitable[TurnContext]], redaction: Redaction
    ) -> None:
        # All log lines of the agent get these fields.
        structlog.contextvars.bind_contextvars(run_id=self.run_id, agent=agent.agent_id, chat_id=self.identity.chat_id)
        current_redaction.set(redaction)
        context = await prepare()
        guard = ConsentGuard(agent.agent_id, context.approval, context.begun)
        written_chars = 0
        async with closing_stream(agent.run(context)) as events:
            async for event in events:
                if isinstance(event, TextEvent):
                    await self._recorder.record(event)
                    written_chars += len(event.text)
                    if written_chars > MAX_TEXT_CHARS:
                        self._ending = TOO_LONG
                        return
                    # Let other tasks run even if the agent never waits.
                    await asyncio.sleep(0)
                    continue
                guard.check(event)
                await self._recorder.record_whole(event)
                if isinstance(event, ToolCallStart) and event.tool_call_id not in context.begun:
                    # The agent may run the tool when it goes on. A `CallRunner` waits for its own starts.
                    await self._recorder.wait_until_stored()
                if self._recorder.terminal:
                    return

    async def _supervise(
        self, agent_task: asyncio.Task[None], redaction: Redaction, on_end: Callable[["Run"], None]
    ) -> None:
        current_redaction.set(redaction)
        await asyncio.wait({agent_task, self._stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        if not agent_task.done():
            await asyncio.wait({agent_task}, timeout=CANCEL_PATIENCE_SECONDS)
        if not agent_task.done():
            _log.warning("agent_ignores_cancel", run_id=self.run_id, agent=self.identity.agent_id)
        try:
            await self._end(agent_task)
        except RunLost:
            self.log.leave()
            await self._recorder.leave()
        except Exception as error:  # noqa: BLE001 - a run without an end would keep its slot and its listeners for ever
            _log.error("run_end_failed", run_id=self.run_id, agent=self.identity.agent_id, exc_info=error)
            self._recorder.end_abruptly(FAILED)
            await self.log.wait_until_stored()
            self.last_event = FAILED.event
        for timer in (self._grace_timer, self._timeout):
            if timer:
                timer.cancel()
        self.inputs.end()
        # The log is kept for a while. Free the request, the transcript, and the exception with its frames.
        self._agent_task = None
        del self._recorder
        last_event = self.last_event.type if self.last_event else None
        _log.info(
            "run_ended" if last_event else "run_left",
            run_id=self.run_id,
            agent=self.identity.agent_id,
            last_event=last_event,
        )
        on_end(self)

    async def _end(self, agent_task: asyncio.Task[None]) -> None:
        """Send the end of the run, or hand the run over. Raises `RunLost` if another server has taken it over."""
        if self.log.is_left:
            await self._recorder.leave()
            return
        has_finished = self._has_agent_finished(agent_task)
        waiting = [] if self._ending or self._recorder.terminal else self.inputs.list_waiting_calls()
        if (waiting and has_finished) or (self.log.is_leaving and not has_finished):
            await self._recorder.stop_accepting()
            if await (self.log.park(waiting) if has_finished else self.log.release()):
                self.log.leave()
                await self._recorder.leave()
                return
            self._ending = CANNOT_WAIT if has_finished else INTERRUPTED
        ending = self._find_ending(agent_task)
        await self._recorder.finish(ending, await self.inputs.end_messages())
        self.last_event = ending.event

    def _has_agent_finished(self, agent_task: asyncio.Task[None]) -> bool:
        return bool(self._recorder.terminal) or (
            agent_task.done() and not agent_task.cancelled() and agent_task.exception() is None
        )

    def _find_ending(self, agent_task: asyncio.Task[None]) -> Ending:
        if self._ending:
            return self._ending
        if self._recorder.terminal:
            return Ending(self._recorder.terminal)
        if agent_task.cancelled():
            return CANCELLED
        match agent_task.exception():
            case None:
                return Ending(Done())
            case RunLost() as lost:
                raise lost
            case CallboardError() as error:
                _log.warning("run_failed", run_id=self.run_id, code=error.code, error=str(error))
                upstream_code = error.upstream_code if isinstance(error, ModelRefused) else ""
                return Ending(Error(message=str(error), code=error.code, upstream_code=upstream_code))
            case error:
                _log.error("agent_raised", run_id=self.run_id, agent=self.identity.agent_id, exc_info=error)
                message = f"The agent failed with {type(error).__name__}: {error}"
                return Ending(Error(message=message, code="agent_error"))
