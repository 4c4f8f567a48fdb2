"""The runner of a turn's tool calls, from their announcement to their end."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog
from pydantic import SecretStr

from callboard._redaction import without_paths
from callboard._text import storable
from callboard._trace_context import within_call
from callboard._watchdog import remember_task
from callboard.calls.approval import APPROVED, FROM_TEXT, PENDING, WAITING, Approval
from callboard.calls.call import (
    REPAIRED,
    CallContext,
    RejectedCall,
    ResolvedCall,
    ToolCall,
    describe_repairs,
    label_call,
    show_arguments,
    spend_nothing,
)
from callboard.calls.context import StatusChannel, StatusReport, ToolContext
from callboard.calls.event_buffer import EventBuffer
from callboard.calls.executor import execute, runs_in_thread
from callboard.calls.limits import Budget
from callboard.calls.masking import mask_result
from callboard.calls.result import ToolResult
from callboard.calls.running_tool import contain, running_a_tool, stopping_time, tools_around
from callboard.calls.started_call import EndedCall, RunningCall
from callboard.errors import ToolError, ToolLimit, ToolTimeout
from callboard_protocol import (
    FROM_TEXT_STATUS,
    Source,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)

R = TypeVar("R")


class CallRunner:
    """The runner of one turn's calls; it keeps the turn's limits and open calls.

    `run_round` does all of it for tools of Callboard. A framework that runs its tools itself says what it does:
    `start`, then `run` around its own code, then `complete` or `fail`; or `reject`. A call's second start, and
    its second end, are ignored: say both wherever they can be learnt of.
    """

    def __init__(self, events: EventBuffer, context: CallContext) -> None:
        self.budget = Budget(context.limits, context.allowances)
        self._events = events
        self._context = context
        self._open: dict[str, RunningCall] = {}

    @property
    def is_over_limit(self) -> bool:
        """Return whether the model has asked for more calls than a turn has: it gets no more tools, then an end."""
        return self.budget.is_exceeded

    @property
    def approval(self) -> Approval:
        """The rule of which calls need the user's approval, and who asks."""
        return self._context.approval

    # --- Calls of Callboard's tools ---------------------------------------------------------------------------------

    async def run_round(self, calls: Sequence[ResolvedCall | RejectedCall]) -> dict[str, EndedCall]:
        """Run the calls of one answer side by side, and return their outcomes by their ids.

        Every call is announced before any runs: whoever reads the events has then written them down. Each end
        and each status is sent at the moment it happens. Calls that the client runs are announced, and have no
        outcome. Where it is cancelled, so are the tools.
        """
        for call in calls:
            self._announce(call)
        # Beside the starts, so that a store has them in one transaction.
        spending = [asyncio.create_task(self._spend()) for call in calls if self._is_counted(call)]
        unspent = iter(spending)
        ended: dict[str, EndedCall] = {}
        running: dict[str, asyncio.Task[EndedCall]] = {}
        try:
            await self._events.wait_until_written()
            for call in calls:
                if isinstance(call, RejectedCall):
                    ended[call.id] = self._end(call.id, call.error)
                elif not call.is_external:
                    running[call.id] = asyncio.create_task(self._run_tool(call, next(unspent, None)))
            await asyncio.gather(*running.values())
        finally:
            at_work = [task for task in [*running.values(), *spending] if not task.done()]
            for task in at_work:
                task.cancel()
            if at_work:
                await asyncio.wait(at_work)
        return ended | {call_id: task.result() for call_id, task in running.items()}

    def _announce(self, call: ResolvedCall | RejectedCall) -> None:
        if isinstance(call, ResolvedCall) and call.is_external:
            self._events.send(
                ToolCallExternal(tool_call_id=call.id, tool_name=call.name, arguments=call.arguments_text)
            )
            return
        is_stoppable = not (isinstance(call, ResolvedCall) and runs_in_thread(call.tool))
        title = call.tool.title if call.tool else ""
        shown = ToolCall(call.id, call.name, show_arguments(call))
        self._send_start(shown, title=title, is_stoppable=is_stoppable)
        if call.call.rescued:
            self._send_status(call.id, FROM_TEXT_STATUS, "read from the model's text")
        if isinstance(call, ResolvedCall) and call.repairs:
            self._send_status(call.id, REPAIRED, describe_repairs(call))

    def _is_counted(self, call: ResolvedCall | RejectedCall) -> bool:
        is_run_here = isinstance(call, ResolvedCall) and not call.is_external
        return is_run_here and self._context.spend is not spend_nothing

    async def _spend(self) -> ToolLimit | None:
        """Count a call of the user's; return why it may not run."""
        try:
            await self._context.spend()
        except ToolLimit as refused:
            return refused
        return None

    async def _run_tool(self, call: ResolvedCall, spending: asyncio.Task[ToolLimit | None] | None) -> EndedCall:
        call_id = call.id
        tool = call.tool
        turn = self._context
        record = self._open[call_id]
        record.counted_from = time.monotonic()
        channel = StatusChannel(partial(self.report, call_id))
        context = ToolContext(
            call_id,
            tool.name,
            turn.chat_id,
            turn.user,
            channel,
            turn.sources,
            turn.agent_id,
            turn.services,
            turn.quotas,
            turn.redaction,
        )
        turn.redaction.add(*_find_secrets(call))
        outcome: ToolResult | ToolError
        try:
            if spending and (refused := await spending):
                raise refused
            is_from_text = call.call.asks_first and self.approval.is_needed_for_text(tool)
            if is_from_text or self.approval.is_needed(tool, call.arguments):
                self.approval.check_can_ask(tool.name, is_from_text=is_from_text)
                reason = FROM_TEXT if call.call.rescued else ""
                shown = ToolCall(call_id, tool.name, tool.without_secrets(call.arguments))
                await self.approve(shown, title=tool.title, reason=reason)
            with within_call(call_id):
                outcome = await execute(
                    call.tool,
                    call.arguments,
                    context,
                    default_timeout_seconds=self._context.limits.tool_timeout_seconds,
                )
            # Here, before anybody is told: what goes to the model is what the store will have.
            outcome = replace(outcome, text=await turn.redaction.large(outcome.text))
        except ToolError as error:
            outcome = error
        except asyncio.CancelledError:
            if channel.left_running:
                turn.left_running.add(call_id)
            raise
        return self._end(call_id, outcome, record.elapsed_ms)

    # --- Calls that a framework runs --------------------------------------------------------------------------------

    async def start(self, call: ToolCall) -> None:
        """Begin a call, and return when its start is written down: the tool must not run before."""
        if call.id in self._open:
            return
        self._send_start(call)
        await self._events.wait_until_written()

    def complete(self, call_id: str, result: ToolResult) -> None:
        """End a call well."""
        if (record := self._open.get(call_id)) is not None:
            self._end(call_id, result, record.elapsed_ms)

    def fail(self, call_id: str, error: ToolError | str) -> None:
        """End a call that failed: with a `ToolError`, or with what the framework says of it."""
        if (record := self._open.get(call_id)) is not None:
            failure = error if isinstance(error, ToolError) else ToolError(without_paths(error))
            self._end(call_id, failure, record.elapsed_ms)

    def show_ended(self, call: ToolCall, result: ToolResult) -> None:
        """Show a call that was over before it could be known of."""
        self._send_start(call)
        self.complete(call.id, result)

    def reject(self, rejected: RejectedCall) -> None:
        """Show a call that the framework did not run: no such tool, unreadable arguments."""
        self.budget.refuse(rejected.error)
        self._send_start(rejected.call)
        self.fail(rejected.call.id, rejected.error)

    async def run(
        self,
        call: ToolCall,
        perform: Callable[[], Awaitable[R]],
        *,
        ask: bool = False,
        is_counted: bool = False,
    ) -> R:
        """Run a call that has been started by what the framework does for it, and return what that gives.

        It is run within the turn's budget (unless `count` has been asked: `is_counted`), asked about where the
        server's settings say so (or in any case: `ask`), in its time, and `report_status` reports for it. Says
        nothing of its end. Raises `ToolLimit`, `ToolDenied`, `ToolTimeout`, and whatever `perform` raises.
        """
        try:
            if not is_counted:
                self.budget.spend_execution(call.name, _read_object(call.arguments))
        except ToolLimit as error:
            # A model that never takes the hint must come to an end too.
            self.budget.refuse(error)
            raise
        await self._context.spend()
        record = self._open.get(call.id)
        # Once is enough: the framework may have asked of its own accord.
        is_approved = record is not None and record.is_approved
        if (ask or self.approval.names(call.name)) and not is_approved:
            await self.approve(call)
        return await self.resume(call.id, call.name, perform)

    async def resume(self, call_id: str, name: str, perform: Callable[[], Awaitable[R]]) -> R:
        """Run a further part of a call that `run` has let run: in its time, its reports this call's."""
        limit = self._context.limits.tool_timeout_seconds
        try:
            with self.reporting(call_id):
                async with asyncio.timeout(limit) as timeout:
                    with running_a_tool(call_id, timeout):
                        return await mask_result(await contain(perform()), self._context.redaction)
        except TimeoutError:
            if timeout.expired():
                self._fail_inside(call_id, name)
                raise ToolTimeout(f"{name} did not end within {limit:g} s and was stopped.") from None
            raise

    def count(self, call_id: str, name: str) -> ToolLimit | None:
        """Count a call out of reach, such as that of an agent in a tool; return the limit that it is over, if so."""
        try:
            # Its id in place of its arguments: whether an agent in a tool repeats itself is its own affair.
            self.budget.spend_execution(name, {"id": call_id})
        except ToolLimit as refused:
            return refused
        return None

    @contextmanager
    def reporting(self, call_id: str) -> Iterator[None]:
        """Have `report_status` speak for this call within this context, and no more after it; `run` is within it."""
        channel = StatusChannel(partial(self.report, call_id))
        token = channel.activate()
        name = self._open[call_id].name if call_id in self._open else ""
        try:
            # What is logged meanwhile, by the watchdog too, says for which call.
            with structlog.contextvars.bound_contextvars(tool_call_id=call_id, tool=name), within_call(call_id):
                remember_task()
                yield
        except (asyncio.CancelledError, TimeoutError):
            # A function in a thread of the framework learns it by its next report.
            channel.cancel()
            raise
        finally:
            channel.close()
            token.var.reset(token)

    @contextmanager
    def waiting(self, call_id: str | None) -> Iterator[None]:
        """Leave the time of this context out of the call's duration: its user is asked."""
        began_at_seconds = time.monotonic()
        try:
            yield
        finally:
            if (record := self._open.get(call_id or "")) is not None:
                record.counted_from += time.monotonic() - began_at_seconds

    # --- Both -------------------------------------------------------------------------------------------------------

    async def approve(self, call: ToolCall, *, title: str = "", reason: str = "") -> None:
        """Ask the user whether a call that has been started may run; raise `ToolDenied` unless they agree."""
        self.approval.check_can_ask(call.name)
        arguments = _read_object(call.arguments)
        request = self.approval.request(call.name, arguments, call.id, title=title, reason=reason)
        self.report(call.id, StatusReport(PENDING, WAITING))
        self._events.send(request)
        with stopping_time():
            await self.approval.obtain(request)
        self.report(call.id, StatusReport("processing", APPROVED))
        await self._events.wait_until_written()
        if (record := self._open.get(call.id)) is not None:
            record.is_approved = True
            record.counted_from = time.monotonic()

    def report(self, call_id: str, step: StatusReport) -> None:
        """Show how far an open call is."""
        if call_id in self._open:
            self._send_status(call_id, step.status, step.message, step.progress)

    def _send_start(self, call: ToolCall, *, title: str = "", is_stoppable: bool = True) -> None:
        self._context.begun.add(call.id)
        inside = tuple(tool.call_id for tool in tools_around())
        start = ToolCallStart(
            tool_call_id=call.id,
            tool_name=call.name,
            tool_args=call.arguments if isinstance(call.arguments, str) else dict(call.arguments),
            stoppable=is_stoppable,
            label=storable(label_call(title or call.name, self._context.redaction.value(call.arguments))),
            parent_call_id=call.parent_call_id or next(iter(inside), ""),
        )
        self._open[call.id] = RunningCall(start, inside=inside)
        self._events.send(start)

    def _send_status(self, call_id: str, status: str, message: str, progress: float | None = None) -> None:
        data = ToolStatusData(status=storable(status), message=storable(message), progress=progress)
        self._events.send(ToolStatus(tool_call_id=call_id, data=data))

    def _fail_inside(self, call_id: str, name: str) -> None:
        """Fail what is open of the calls inside one that was stopped."""
        for inner_id, record in list(self._open.items()):
            if call_id in record.inside:
                inner = record.name
                self.fail(inner_id, ToolTimeout(f"{inner} was stopped: {name}, which it is a part of, took too long."))

    def _end(self, call_id: str, outcome: ToolResult | ToolError, duration_ms: int | None = None) -> EndedCall:
        """Send the end of an open call, and return the call."""
        call = self._open.pop(call_id)
        end: ToolCallComplete | ToolCallError
        if isinstance(outcome, ToolError):
            error = self._context.redaction(storable(str(outcome))) or type(outcome).__name__
            end = ToolCallError(
                tool_call_id=call_id, tool_name=call.name, error=error, code=outcome.code, duration_ms=duration_ms
            )
        else:
            end = ToolCallComplete(
                tool_call_id=call_id,
                tool_name=call.name,
                result=outcome.text,
                result_chars=len(outcome.text),
                duration_ms=duration_ms,
                files=tuple(dict(file) for file in outcome.files),
                embeds=outcome.embeds,
            )
        self._events.send(end)
        for source in outcome.sources if isinstance(outcome, ToolResult) else ():
            if isinstance(source, Source):
                self._events.send(source)
        return call.end(end, outcome)


def _read_object(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments or "{}")
    except ValueError:
        read = arguments
    return read if isinstance(read, dict) else {"arguments": read}


def _find_secrets(call: ResolvedCall) -> list[str]:
    """Return the values of the call's secret arguments, which its tool may repeat."""
    values = [call.arguments.get(name) for name in call.tool.secret_arguments]
    return [value.get_secret_value() if isinstance(value, SecretStr) else str(value) for value in values if value]
