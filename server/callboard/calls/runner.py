"""Runs the tool calls of a turn: start, approval, execution within limits, end."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import structlog

from callboard.calls.approval import (
    ANSWERED,
    ASKING,
    CHANGED,
    CHANGED_BY_AGENT,
    CHANGED_BY_USER,
    CHANGED_SINCE_CONSENT,
    FROM_TEXT,
    OTHERS_ANSWERED,
    PENDING,
    TOOL_CHANGED,
    TOOL_CHANGED_SINCE_QUESTION,
    WAITING,
    CallWaits,
    add_reason,
    may_allow,
    show_values,
)
from callboard.calls.call import (
    REPAIRED,
    CallContext,
    EndedCall,
    RejectedCall,
    ResolvedCall,
    RunningCall,
    ToolCall,
    describe_repairs,
    label_call,
    read_object,
    show_arguments,
    spend_nothing,
)
from callboard.calls.context import CallClock, StatusChannel, StatusReport, ToolContext
from callboard.calls.executor import execute, runs_in_thread
from callboard.calls.forms import ChangesForm, UnfitAnswer, ask_until_fitting
from callboard.calls.limits import Budget
from callboard.calls.masking import mask_result
from callboard.calls.pictures import Pictures
from callboard.calls.running_tool import contain, running_a_tool, tools_around
from callboard.calls.tool import Tool, ToolResult, make_fingerprint
from callboard.errors import ToolError, ToolLimit, ToolNotAnswered, ToolTimeout
from callboard.redaction import without_paths
from callboard.text import storable
from callboard_protocol import (
    Event,
    InputRequest,
    Source,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from callboard_protocol.events import ELSEWHERE_STATUS, FROM_TEXT_STATUS

R = TypeVar("R")

Apply = Callable[[], Awaitable[None]]
"""Applies the user's answer to a call. Raises `ToolError` unless they agree."""

CHANGES_NOTE = "The user changed the arguments of this call before they allowed it. It ran with"
"""The note for the model about the user's changes, before the changed arguments."""

STOPPED_IF_ASYNC = "was stopped, unless it runs in a thread: then it may still be running"
"""What happened to a framework's tool after its time. The runner does not know whether it is a function in a thread."""


class EventBuffer:
    """Holds events until the reader takes them. `on_send` is called with each event when it is sent.

    Not an `asyncio.Queue`, which takes more memory than everything else that a turn without events needs here.
    """

    def __init__(self, on_send: Callable[[Event], None] = lambda _: None) -> None:
        self._on_send = on_send
        self._unread: list[Event | Callable[[], None]] = []
        self._more: asyncio.Future[None] | None = None

    def send(self, event: Event) -> None:
        """Add an event."""
        self._on_send(event)
        self._unread.append(event)
        self._wake()

    async def wait_until_processed(self) -> None:
        """Return when the reader has processed every event sent so far: approvals are then stored."""
        processed = asyncio.Event()
        self.call_in_order(processed.set)
        await processed.wait()

    def call_in_order(self, function: Callable[[], None]) -> None:
        """Call the function when every event sent so far is processed; never if reading has stopped."""
        self._unread.append(function)
        self._wake()

    async def read(self, work: "asyncio.Task[object]") -> AsyncGenerator[Event, None]:
        """Yield the events until `work`, the task that sends them, has ended. Closing the generator cancels it."""
        work.add_done_callback(lambda _: self._wake())
        try:
            while self._unread or not work.done():
                unread = self._unread
                self._unread = []
                for item in unread:
                    if isinstance(item, Event):
                        yield item
                    else:
                        item()
                if not self._unread and not work.done():
                    self._more = asyncio.get_running_loop().create_future()
                    await self._more
        finally:
            work.cancel()
            await asyncio.wait({work})

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


class CallRunner:
    """Runs the calls of one turn, sends their events and enforces the limits of the turn.

    `run_round` does everything for Callboard's own tools. An adapter of a framework that runs its tools itself calls
    `start`, then `run` around the framework's code, then `complete` or `fail`; or `reject`. A second start or end of a
    call is ignored, so an adapter may report both in every place that can know of them.
    """

    def __init__(self, events: EventBuffer, context: CallContext) -> None:
        self.budget = Budget(context.limits, context.allowances)
        self.approval = context.approval
        """Which calls need the user's approval, and who is asked."""
        self._events = events
        self._context = context
        self._open: dict[str, RunningCall] = {}
        self._refused: dict[str, ToolError] = {}
        """Why calls of a framework were refused after their arguments had changed, by id."""
        self.shown_tools: dict[str, object] = {}
        """A framework's tools by name, as its model is shown them. Only these of its tools can be allowed always."""
        self.earlier_results: Mapping[str, str] = {}
        """The results of a framework's calls that another server has ended, by call id."""
        self.on_wait: Callable[[], object] = lambda: None
        """Called when every open call of a framework waits for its approval."""
        self._waiting: set[str] = set()
        self._paused: set[str] = set()
        self._continued: Mapping[str, ToolCall] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether calls of a framework wait for their approval, and no other call goes on before that."""
        return bool(self._waiting) and self._open.keys() <= self._waiting | self._paused

    @property
    def is_over_limit(self) -> bool:
        """Whether the model has asked for more calls than the turn allows."""
        return self.budget.is_exceeded

    # --- Calls of Callboard's tools ---------------------------------------------------------------------------------

    async def run_round(
        self, calls: Sequence[ResolvedCall | RejectedCall], *, is_counted: bool = False
    ) -> dict[str, EndedCall]:
        """Run the calls of one answer concurrently, and return the ended calls by their ids.

        The start of every call is sent and recorded before the first one runs. A call that the client runs is sent to
        it and is not in the result; a call that waits for its approval is not either, and stays open. Cancelling this
        method cancels the tools. `is_counted`: an earlier server has counted the calls against the user's quota, when
        it sent their starts.
        """
        for call in calls:
            self._send_call(call)
        own = [call for call in calls if isinstance(call, ResolvedCall) and not call.is_external]
        is_spending = not is_counted and self._context.spend is not spend_nothing
        # At the same time as the starts, so that the store can write both in one transaction.
        spending = {call.id: asyncio.create_task(self._spend()) for call in own if is_spending}
        running: dict[str, asyncio.Task[EndedCall | None]] = {}
        try:
            await self._wait_until_stored()
            rejected = [call for call in calls if isinstance(call, RejectedCall)]
            ended = {call.id: self._end(call.id, call.error) for call in rejected}
            running = {call.id: asyncio.create_task(self._run_tool(call, spending.get(call.id))) for call in own}
            await asyncio.gather(*running.values())
        finally:
            at_work = [task for task in [*running.values(), *spending.values()] if not task.done()]
            for task in at_work:
                task.cancel()
            if at_work:
                await asyncio.wait(at_work)
        return ended | {call_id: end for call_id, task in running.items() if (end := task.result())}

    async def _wait_until_stored(self) -> None:
        """Return when the starts that were sent are stored. Together, so that they share a transaction."""
        await self._events.wait_until_processed()
        await self._context.wait_until_stored()

    def _send_call(self, call: ResolvedCall | RejectedCall) -> None:
        if isinstance(call, ResolvedCall) and call.is_external:
            self._events.send(
                ToolCallExternal(tool_call_id=call.id, tool_name=call.name, arguments=call.arguments_text)
            )
            return
        is_stoppable = not (isinstance(call, ResolvedCall) and runs_in_thread(call.tool))
        title, show = (call.tool.title, call.tool.show) if call.tool else ("", "")
        shown = ToolCall(call.id, call.name, show_arguments(call), rescued=call.call.rescued)
        needs_approval = isinstance(call, ResolvedCall) and self._check_approval(call)
        self._send_start(shown, title=title, show=show, is_stoppable=is_stoppable, needs_approval=needs_approval)
        if call.call.rescued:
            self._send_status(call.id, FROM_TEXT_STATUS, "read from the model's text")
        # Repairs quote values, which may be secret.
        if isinstance(call, ResolvedCall) and call.repairs and not call.tool.secret_arguments:
            self._send_status(call.id, REPAIRED, describe_repairs(call))

    async def _spend(self) -> ToolLimit | None:
        """Count a call against the user's quota; return the error if none is left."""
        try:
            await self._context.spend()
        except ToolLimit as refused:
            return refused
        return None

    async def _run_tool(self, call: ResolvedCall, spending: asyncio.Task[ToolLimit | None] | None) -> EndedCall | None:
        tool = call.tool
        shared = self._context
        channel = StatusChannel(partial(self.report, call.id))
        context = ToolContext(
            call.id,
            tool.name,
            shared.chat_id,
            shared.user,
            channel,
            shared.sources,
            shared.agent_id,
            shared.services,
            shared.quotas,
            shared.redaction,
            send_question=self._ask,
            keep_task=partial(self._keep_task, call.id),
            task_id=call.call.task_id,
            is_left=shared.is_left,
            clock=self._open[call.id].clock,
        )
        outcome: ToolResult | ToolError
        note = ""
        try:
            if spending and (refused := await spending):
                raise refused
            call = await self._approve_if_needed(call)
            if call.call.is_changed:
                note = f"{CHANGES_NOTE} {show_arguments(call)}"
            limit = shared.limits.tool_timeout_seconds
            outcome = await execute(tool, call.arguments, context, default_timeout_seconds=limit)
            # Here, so that the model and the store get the same text.
            outcome = replace(outcome, text=await shared.redaction.large(outcome.text))
        except CallWaits:
            return None
        except ToolError as error:
            outcome = error
        except asyncio.CancelledError:
            if channel.left_running:
                shared.left_running.add(call.id)
            raise
        return self._end(call.id, outcome, note)

    async def _approve_if_needed(self, call: ResolvedCall) -> ResolvedCall:
        """Ask the user if the call needs approval, and return the call with their changes.

        Raises `ToolDenied` unless they agree.
        """
        needs_approval = self._open[call.id].needs_approval
        if isinstance(needs_approval, ToolError):
            raise needs_approval
        if not needs_approval:
            return call
        tool = call.tool
        is_from_text = call.call.asks_first and self.approval.is_needed_for_text(tool)
        self.approval.check_can_ask(tool.name, is_from_text=is_from_text)
        reason = FROM_TEXT if call.call.rescued else ""
        shown = replace(call.call, arguments=tool.without_secrets(call.arguments))
        form = ChangesForm(call, self._context.redaction)
        apply = await self._ask_approval(shown, tool=tool, reason=reason, form=form)
        await apply()
        return form.call

    def _check_approval(self, call: ResolvedCall) -> bool | ToolError:
        """Return whether the user is asked before the call runs, or why it may not run at all."""
        try:
            is_from_text = call.call.asks_first and self.approval.is_needed_for_text(call.tool)
            return call.call.needs_approval or is_from_text or self.approval.is_needed(call.tool, call.arguments)
        except ToolError as error:
            return error

    # --- Calls that a framework runs --------------------------------------------------------------------------------

    def continue_calls(self, unfinished: Sequence[ToolCall], results: Mapping[str, str]) -> None:
        """Continue the calls of an answer that another server has begun.

        Those that have a result do not run again; an adapter gives the framework `earlier_results` in their place.
        """
        self._continued = {call.id: call for call in unfinished}
        self.earlier_results = results
        self._context.begun.update(results)

    async def start(self, call: ToolCall, *, asks_first: bool = False, runs_at: str = "") -> None:
        """Send the start of a call, and return when it is recorded. The tool must not run before that.

        `asks_first`: the user is asked before the tool runs, about this call or another one of the same answer.
        `runs_at`: the place of the tool, if neither this server nor the client runs it.
        """
        # Also if the call has already ended: a framework may report a start late.
        if call.id in self._context.begun:
            return
        self._send_start(call, is_stoppable=not runs_at, needs_approval=asks_first)
        if runs_at:
            self._send_status(call.id, ELSEWHERE_STATUS, f"runs at {runs_at}")
        await self._wait_until_stored()

    def complete(self, call_id: str, result: ToolResult) -> None:
        """End a call with its result."""
        if call_id in self._open:
            self._end(call_id, result)

    def fail(self, call_id: str, error: ToolError | str) -> None:
        """End a call with a `ToolError`, or with the framework's own error message."""
        if call_id in self._open:
            self._end(call_id, error if isinstance(error, ToolError) else ToolError(without_paths(error)))

    def emit_finished(self, call: ToolCall, result: ToolResult) -> None:
        """Send the start and the end of a call that has already finished."""
        self._send_start(call)
        self.complete(call.id, result)

    def reject(self, rejected: RejectedCall) -> None:
        """Send the start and the error of a call that the framework does not run, for example of an unknown tool."""
        if rejected.call.id in self.earlier_results:
            return
        self.budget.refuse(rejected.error)
        self._send_start(rejected.call)
        self.fail(rejected.call.id, rejected.error)

    async def run(
        self,
        call: ToolCall,
        perform: Callable[[], Awaitable[R]],
        *,
        is_counted: bool = False,
    ) -> R:
        """Run the framework's code for a call that has started, and return its result without secrets.

        The call is taken from the turn's budget unless `is_counted`, which means that `count` has done so. The user is
        asked first if the settings name the tool. The tool has a time limit, and its `report_status`
        reports for this call. The end is not sent. Raises `ToolLimit`, `ToolDenied`, `ToolTimeout`, and the exceptions
        of `perform`.
        """
        try:
            if not is_counted:
                self.budget.spend_execution(call.name, read_object(call.arguments))
        except ToolLimit as error:
            # Counted as a refusal, so that a model that asks again and again reaches a limit.
            self.budget.refuse(error)
            raise
        continued = self._continued.get(call.id)
        running = self._open.get(call.id)
        # The framework may have asked already.
        is_approved = running is not None and running.is_approved
        needs_approval = self.approval.names(call.name) or (continued and continued.asked_fingerprint is not None)
        if needs_approval and not is_approved:
            await self.approve(call)
        elif running is not None and running.needs_approval and not is_approved:
            # Stored, so that no other server takes the call for one that has not run.
            running.needs_approval = False
            self.report(call.id, StatusReport("processing", OTHERS_ANSWERED))
            await self._events.wait_until_processed()
        await self._context.spend()
        return await self.run_part(call.id, call.name, perform)

    async def change_arguments(self, call_id: str, arguments: Mapping[str, Any]) -> None:
        """Show the arguments with which the framework's code runs a started call, if others were shown.

        If the user has agreed to those, they are asked again. Raises `ToolError` unless they agree, also if the call is
        tried again.
        """
        if call_id in self._refused:
            raise self._refused[call_id]
        if self.shows(call_id, arguments) or (running := self._open.get(call_id)) is None:
            return
        changed = show_values(arguments)
        self._show_changes(call_id, changed, CHANGED_BY_AGENT)
        if not running.is_approved:
            return
        try:
            await self.approve(ToolCall(call_id, running.name, changed), is_again=True)
        except ToolError as refused:
            # Here, because code of the framework around the tool may catch it.
            self._refused[call_id] = refused
            self.fail(call_id, refused)
            raise

    def shows(self, call_id: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether these arguments of an open call are shown, apart from secrets. Any thread may ask."""
        running = self._open.get(call_id)
        return running is not None and self._is_same(arguments, read_object(running.start.tool_args))

    def _is_same(self, arguments: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
        redact = self._context.redaction.value
        return bool(redact(show_values(arguments)) == redact(shown))

    async def run_part(self, call_id: str, name: str, perform: Callable[[], Awaitable[R]]) -> R:
        """Run another part of a call that `run` has allowed, with a time limit of its own."""
        self._paused.discard(call_id)
        async with self.performing(call_id, name):
            return await mask_result(await contain(perform()), self._context.redaction)

    def pause(self, call_id: str) -> None:
        """Note that a call goes on, with `run_part`, only when the calls beside it have ended or asked too."""
        self._paused.add(call_id)
        self._tell_if_waiting()

    @asynccontextmanager
    async def performing(self, call_id: str, name: str, *, is_limited: bool = True) -> AsyncIterator[None]:
        """Make the call's tool the running tool inside the context, with a time limit if `is_limited`.

        `report_status` reports for this call inside the context, and does nothing after it. For a framework that runs
        the rest of a call's code itself. Raises `ToolTimeout`.
        """
        limit = self._context.limits.tool_timeout_seconds if is_limited else math.inf
        running = self._open.get(call_id)
        clock = CallClock() if running is None else running.clock
        channel = StatusChannel(partial(self.report, call_id))
        token = channel.activate()
        try:
            # Log lines of this time name the call.
            with structlog.contextvars.bound_contextvars(tool_call_id=call_id, tool=name):
                async with clock.limit(limit) as timeout:
                    with running_a_tool(call_id, clock):
                        yield
        except (asyncio.CancelledError, TimeoutError) as error:
            # The next report of a function in a thread then raises an exception.
            channel.cancel()
            if isinstance(error, TimeoutError) and timeout.expired():
                self._fail_inside(call_id, name)
                raise ToolTimeout(f"{name} did not end within {limit:g} s and {STOPPED_IF_ASYNC}.") from None
            raise
        finally:
            channel.close()
            token.var.reset(token)

    def count(self, call_id: str, name: str) -> ToolLimit | None:
        """Take from the budget a call that does not go through `run`; return the error if the limit is reached."""
        try:
            # With the id as its arguments, so that it never counts as a repeated call.
            self.budget.spend_execution(name, {"id": call_id})
        except ToolLimit as refused:
            return refused
        return None

    @contextmanager
    def waiting(self, call_id: str | None) -> Iterator[None]:
        """Stop the clocks of a call and of the tools around it inside the context, because the user is asked."""
        clocks = [tool.clock for tool in tools_around()]
        if running := self._open.get(call_id or ""):
            clocks.append(running.clock)
        with ExitStack() as stack:
            for clock in clocks:
                stack.enter_context(clock.waiting())
            yield

    # --- Both kinds -------------------------------------------------------------------------------------------------

    async def approve_all(self, calls: Sequence[ToolCall]) -> list[ToolError | None]:
        """Start calls of a framework, and ask the user about all of them before the framework runs one.

        Return why each of them may not run; None if it may. If one of them waits, the method does not return: an
        exception would pass through code of the framework. Calls that are open besides them then end, or run when the
        run goes on.
        """
        for call in calls:
            await self.start(call)
        agreed = {call_id for call_id, call in self._open.items() if call.is_approved}
        asked = [call for call in calls if call.id not in {*self.earlier_results, *agreed}]
        answers = await asyncio.gather(*map(self._ask_approval, asked), return_exceptions=True)
        if any(isinstance(answer, CallWaits) for answer in answers):
            await self._wait_for_end(self._open)
        decisions = await asyncio.gather(*map(_decide, answers))
        refusals = {call.id: refused for call, refused in zip(asked, decisions, strict=True)}
        return [refusals.get(call.id) for call in calls]

    async def approve(self, call: ToolCall, *, is_again: bool = False) -> None:
        """Ask the user whether a call of a framework that has started may run.

        `is_again`: the arguments have changed since the user agreed. Raises `ToolError` unless they agree. If the call
        waits, the method does not return, as `approve_all`.
        """
        try:
            apply = await self._ask_approval(call, again=CHANGED_SINCE_CONSENT if is_again else "")
        except CallWaits:
            await self._wait_for_end([call.id])
        else:
            await apply()

    async def _wait_for_end(self, call_ids: Iterable[str]) -> None:
        """Keep the framework from going on until the run ends."""
        self._waiting.update(call_ids)
        self._tell_if_waiting()
        await asyncio.get_running_loop().create_future()

    def _tell_if_waiting(self) -> None:
        if self.is_waiting:
            self.on_wait()

    async def _ask_approval(
        self,
        call: ToolCall,
        *,
        tool: Tool | None = None,
        reason: str = "",
        form: ChangesForm | None = None,
        again: str = "",
    ) -> Apply:
        """Ask the user whether a call that has started may run, with their changes in `form`.

        If the tool changes before the answer, also since an earlier server asked, the user is asked again; so they are
        if the arguments are not those of that server's question. `again`: the reason why an earlier answer does not
        count. Return what applies the answer. Raises `ToolError` and `CallWaits`.
        """
        self.approval.check_can_ask(call.name)
        asked = self._continued.get(call.id, call)
        arguments = read_object(call.arguments)
        if asked is not call and not self._is_same(arguments, read_object(asked.arguments)):
            again = CHANGED_SINCE_CONSENT
        current = self._find_fingerprint(call.name, tool)
        fingerprint = current if asked.asked_fingerprint is None else asked.asked_fingerprint
        request = self.approval.request(
            call.name,
            arguments,
            call.id,
            title=tool.title if tool else "",
            reason=reason,
            form=form.schema if form else {},
            fingerprint=fingerprint,
        )
        if again:
            # With an id of its own, because the answers to earlier questions do not count.
            own_id = f"changed:{uuid4().hex}:{request.request_id}"
            request = add_reason(request.model_copy(update={"request_id": own_id}), again)
        # The recorder drops a question that already has an answer, see `Inputs.open`.
        remembered = self.approval.remembered if request.remember else None
        if remembered and await remembered.answer(request, call.name):
            request = add_reason(request, TOOL_CHANGED)
        self.report(call.id, StatusReport(PENDING, WAITING))

        async def send(question: InputRequest) -> Any:
            # A question that is asked again has another id.
            nonlocal request
            request = question.model_copy(update={"tool_fingerprint": fingerprint})
            self._events.send(request)
            return await self.approval.answer_to(request)

        def read(answer: Any) -> Any:
            nonlocal fingerprint
            if may_allow(answer) and fingerprint != (current := self._find_fingerprint(call.name, tool)):
                fingerprint = current
                raise UnfitAnswer(TOOL_CHANGED_SINCE_QUESTION)
            return form.read(answer) if form else answer

        with self.waiting(call.id):
            answer = await ask_until_fitting(request, send, read)
        # Not in `apply`, which is not called while another call of a framework waits, perhaps of the same tool.
        await self.approval.remember(answer, request, call.name, fingerprint)

        async def apply() -> None:
            agreed = self.approval.apply(answer, request)
            if form and form.call.call.is_changed:
                self._show_changes(call.id, read_object(show_arguments(form.call)), CHANGED_BY_USER)
            self.report(call.id, StatusReport("processing", agreed))
            await self._events.wait_until_processed()
            if (running := self._open.get(call.id)) is not None:
                running.is_approved = True
                running.clock.restart()

        return apply

    def _find_fingerprint(self, name: str, tool: Tool | None) -> str:
        if tool:
            return tool.fingerprint
        return make_fingerprint(self.shown_tools[name]) if name in self.shown_tools else ""

    def _show_changes(self, call_id: str, arguments: Mapping[str, Any], message: str) -> None:
        """Show changed arguments without secrets. Later turns get them too."""
        data = ToolStatusData(status=CHANGED, message=message, arguments=self._context.redaction.value(arguments))
        self._open[call_id].take_step(data)
        self._events.send(ToolStatus(tool_call_id=call_id, data=data))

    async def _ask(self, question: InputRequest) -> Any:
        """Ask the user a question of a running tool, and return the answer; None if there is none."""
        if not self.approval.can_ask:
            return None
        call_id = question.tool_call_id or ""

        async def send(asked: InputRequest) -> Any:
            self.report(call_id, StatusReport(ASKING, asked.title))
            self._events.send(asked)
            with self.waiting(call_id):
                return await self.approval.answer_to(asked)

        try:
            answer = await ask_until_fitting(question, send)
        except ToolNotAnswered as unfit:
            self.report(call_id, StatusReport("processing", "no answer"))
            # Not with its code, which says that the tool has not run.
            raise ToolError(str(unfit)) from unfit
        self.report(call_id, StatusReport("processing", "no answer" if answer is None else ANSWERED))
        return answer

    async def _keep_task(self, call_id: str, task_id: str) -> None:
        data = ToolStatusData(status="processing", message="works as a task", task_id=storable(task_id))
        self._events.send(ToolStatus(tool_call_id=call_id, data=data))
        await self._events.wait_until_processed()

    def report(self, call_id: str, step: StatusReport) -> None:
        """Send a step of an open call; ignored if the call is not open."""
        if call_id in self._open:
            self._send_status(call_id, step.status, step.message, step.progress)

    def _send_start(
        self,
        call: ToolCall,
        *,
        title: str = "",
        show: str = "",
        is_stoppable: bool = True,
        needs_approval: bool | ToolError = False,
    ) -> None:
        self._context.begun.add(call.id)
        inside = tuple(tool.call_id for tool in tools_around())
        start = ToolCallStart(
            tool_call_id=call.id,
            tool_name=call.name,
            tool_args=call.arguments if isinstance(call.arguments, str) else dict(call.arguments),
            stoppable=is_stoppable,
            label=storable(label_call(title or call.name, self._context.redaction.value(call.arguments))),
            from_text=call.rescued,
            asks_first=needs_approval is True,
            show=show,
            parent_call_id=call.parent_call_id or next(iter(inside), ""),
        )
        self._open[call.id] = RunningCall(start, inside=inside, needs_approval=needs_approval)
        self._events.send(start)

    def _send_status(self, call_id: str, status: str, message: str, progress: float | None = None) -> None:
        data = ToolStatusData(status=storable(status), message=storable(message), progress=progress)
        self._events.send(ToolStatus(tool_call_id=call_id, data=data))

    def _fail_inside(self, call_id: str, name: str) -> None:
        """End the open calls inside a call that was stopped."""
        for inner_id, running in list(self._open.items()):
            if call_id in running.inside:
                inner = running.name
                reason = f"{name}, which called {inner}, took too long. {inner} {STOPPED_IF_ASYNC}."
                self.fail(inner_id, ToolTimeout(reason))

    def _end(self, call_id: str, outcome: ToolResult | ToolError, note: str = "") -> EndedCall:
        """Send the end of an open call, and return the ended call; `note` goes before its result or error."""
        call = self._open.pop(call_id)
        duration_ms = call.clock.elapsed_ms
        before = f"{self._context.redaction(storable(note))}\n\n" if note else ""
        end: ToolCallComplete | ToolCallError
        if isinstance(outcome, ToolError):
            message = Pictures(can_show=False).take_from(self._context.redaction(storable(str(outcome))))
            if message != str(outcome):
                # `RunContext.call` raises this error, and its message is then logged or sent to a model.
                outcome.args = (message,)
            error = before + (message or type(outcome).__name__)
            end = ToolCallError(
                tool_call_id=call_id, tool_name=call.name, error=error, code=outcome.code, duration_ms=duration_ms
            )
        else:
            pictures = Pictures(outcome.files)
            text = pictures.take_from(before + outcome.text)
            outcome = replace(outcome, text=text, files=tuple(pictures.files))
            end = ToolCallComplete(
                tool_call_id=call_id,
                tool_name=call.name,
                result=text,
                result_chars=len(text),
                duration_ms=duration_ms,
                files=tuple(pictures.files),
                embeds=tuple(outcome.embeds),
            )
        self._events.send(end)
        for source in outcome.sources if isinstance(outcome, ToolResult) else ():
            if isinstance(source, Source):
                self._events.send(source)
        # The plan of an agent inside a call is not the plan of the run.
        is_inner = bool(call.inside or call.start.parent_call_id)
        if isinstance(outcome, ToolResult) and outcome.plan is not None and not is_inner:
            self._events.send(outcome.plan)
        self._tell_if_waiting()
        return call.end(end, outcome)


async def _decide(answer: Apply | BaseException) -> ToolError | None:
    """Apply an answer, and return the refusal. Raises any other error."""
    try:
        if isinstance(answer, BaseException):
            raise answer
        await answer()
    except ToolError as refused:
        return refused
    return None
