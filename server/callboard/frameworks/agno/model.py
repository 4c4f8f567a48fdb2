"""Models of Agno that report their requests and calls to a turn, and apply the server's limits to the calls.

Agno's events are not enough: a call ends only with its whole batch, calls that cannot be run have no event, and an
error is a text. But every call of an agent passes through a few methods of its model, so the agent gets a copy of its
model with these methods overridden.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from contextvars import copy_context
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache, wraps
from inspect import isasyncgenfunction, iscoroutine, iscoroutinefunction
from typing import Any, ClassVar, Literal, cast

from agno.agent import Agent
from agno.exceptions import (
    AgentRunException,
    AgnoError,
    RetryableModelProviderError,
    RunCancelledException,
    StopAgentRun,
)
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.models.utils import get_model
from agno.run.agent import CustomEvent
from agno.run.base import BaseRunOutputEvent
from agno.team import Team
from agno.tools.function import Function, FunctionCall, FunctionExecutionResult
from agno.utils.timer import Timer

from callboard.calls import ToolCall
from callboard.calls.call import RejectedCall
from callboard.calls.executor import error_text
from callboard.calls.masking import mask_result
from callboard.calls.running_tool import contain, containing, current_tool
from callboard.errors import InvalidArguments, ToolError, ToolLimit, UnknownTool
from callboard.frameworks.agno.hooks import AgnoHooks, current_hooks
from callboard.frameworks.agno.messages import merge_system_messages, to_tool_result
from callboard.frameworks.agno.requirements import resolve_requirements
from callboard.frameworks.failures import model_error
from callboard.models import ChatDict
from callboard.models.messages import content_text

AgnoAgent = Agent | Team


ModelRole = Literal["main", "member", "in a tool"]
"""The role of an agent: its text is the answer, or it is a team member, or a tool runs it."""


def hook_models(agent: AgnoAgent, role: ModelRole = "main") -> AgnoAgent:
    """Return a copy of the agent, or of the team and its members, whose models report to `current_hooks`."""
    if isinstance(agent.model, _HookedModel):
        return agent
    # Before the copy, so that Agno's memory and summary managers keep the original model, without hooks.
    if isinstance(agent, Team):
        agent.initialize_team()
    else:
        agent.initialize_agent()
    hooked_agent = copy(agent)
    for name in ("model", "output_model", "parser_model"):
        if (model := get_model(getattr(agent, name))) is not None:
            setattr(hooked_agent, name, _hook_model(model, role))
    # Pre-hooks may check or change the user's words, and Agno calls them only at the beginning of a run.
    vars(hooked_agent.model)["callboard_reads_messages"] = role == "main" and not agent.pre_hooks
    if (fallbacks := hooked_agent.fallback_config) is not None:
        hooked: dict[str, Any] = {
            name: [
                _hook_model(model, role) if isinstance(model, Model) else model for model in getattr(fallbacks, name)
            ]
            for name in ("on_error", "on_rate_limit", "on_context_overflow")
        }
        hooked_agent.fallback_config = replace(fallbacks, **hooked)
    if isinstance(hooked_agent, Team) and isinstance(hooked_agent.members, list):
        others: ModelRole = "in a tool" if role == "in a tool" else "member"
        hooked_agent.members = [
            hook_models(member, others) if isinstance(member, Agent | Team) else member
            for member in hooked_agent.members
        ]
    return hooked_agent


@cache
def hook_agents_in_tools() -> None:
    """Patch Agno so that agents and teams which a tool runs report too. Without a running turn nothing changes."""
    for kind in (Agent, Team):
        kind.arun = _hook_arun(kind.arun)  # type: ignore[method-assign] # in front of it
        kind.run = _hook_run(kind.run)  # type: ignore[method-assign] # in front of it


def _hook_arun(arun: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(arun)
    def run(agent: AgnoAgent, *args: Any, **kwargs: Any) -> Any:
        hooks = current_hooks.get()
        if current_tool.get() is None or hooks is None:
            return arun(agent, *args, **kwargs)
        hooked = hook_models(agent, "in a tool")
        result = arun(hooked, *args, **kwargs)
        return _resolve_pauses(hooked, result, hooks) if iscoroutine(result) else result

    return run


async def _resolve_pauses(agent: AgnoAgent, run: Awaitable[Any], hooks: AgnoHooks) -> Any:
    """Return the output of a run inside a tool, after the user has been asked for everything that it needs."""
    output = await run
    while output.is_paused:
        await resolve_requirements(output, hooks)
        again: Any = agent.acontinue_run(run_response=output, session_id=output.session_id, user_id=output.user_id)
        output = await again
    return output


def _hook_run(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def run_in_the_loop(agent: AgnoAgent, *args: Any, **kwargs: Any) -> Any:
        tool = current_tool.get()
        if tool is None or current_hooks.get() is None:
            return run(agent, *args, **kwargs)
        tool.refuse_to_block(f"run() of the agent '{agent.name or agent.id}'", "use `await agent.arun(…)` there")
        # Agno's types do not distinguish the two results.
        run_in_loop: Any = agent.arun(*args, **kwargs)
        return tool.iterate(run_in_loop) if isinstance(run_in_loop, AsyncIterator) else tool.wait_for(run_in_loop)

    return run_in_the_loop


def _hook_model(model: Model, role: ModelRole) -> Model:
    hooked = copy(model)
    hooked.__class__ = _make_hooked_class(type(model))
    vars(hooked)["callboard_model_role"] = role
    return hooked


@cache
def _make_hooked_class(kind: type[Model]) -> type[Model]:
    # With the same name, because Agno recognises some models by their class name.
    return type(kind.__name__, (_HookedModel, kind), {"__module__": kind.__module__})


class _HookedModel(Model):
    """A model whose requests and calls are reported to `current_hooks`, and whose calls are limited."""

    callboard_model_role: ClassVar[ModelRole] = "main"
    callboard_reads_messages: ClassVar[bool] = False

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        if (answer := _take_unfinished_answer(kwargs)) is not None:
            return answer
        await _add_user_message(self, kwargs)
        with _hooked_request(self, kwargs) as receive:
            response = await super().ainvoke(*args, **kwargs)  # type: ignore[safe-super] # the user's model has one
            receive(response)
            return response

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        if (answer := _take_unfinished_answer(kwargs)) is not None:
            yield answer
            return
        await _add_user_message(self, kwargs)
        with _hooked_request(self, kwargs) as receive:
            async for delta in super().ainvoke_stream(*args, **kwargs):  # type: ignore[safe-super] # the user's model has one
                receive(delta)
                yield delta

    def get_function_calls_to_run(
        self, assistant_message: Message, messages: list[Message], functions: dict[str, Function] | None = None
    ) -> list[FunctionCall]:
        hooks = current_hooks.get()
        if hooks is None:
            return super().get_function_calls_to_run(assistant_message, messages, functions)
        if hooks.turn.calls.is_over_limit:
            # The request offered no tools.
            assistant_message.tool_calls = None
            return []
        calls = assistant_message.tool_calls or []
        for call in calls:
            # Replaced before any other code reads the ids, so that the model is sent the store's ids.
            call["id"] = hooks.turn.claim_call_id(call.get("id"))
            hooks.arguments[call["id"]] = call["function"].get("arguments") or ""
        count_before = len(messages)
        runnable = super().get_function_calls_to_run(assistant_message, messages, functions)
        reasons = {message.tool_call_id: str(message.content) for message in messages[count_before:]}
        for call in calls:
            if (reason := reasons.get(call["id"])) is not None:
                _reject(hooks, call, reason, functions or {})
        return runnable

    def create_tool_call_limit_error_result(self, function_call: FunctionCall) -> Message:
        result = super().create_tool_call_limit_error_result(function_call)
        if (hooks := current_hooks.get()) is not None:
            call_id = function_call.call_id or ""
            call = ToolCall(call_id, function_call.function.name, hooks.arguments.get(call_id, ""))
            hooks.turn.calls.reject(RejectedCall(call, ToolLimit(f"Not run: {result.content}")))
        return result

    async def arun_function_calls(
        self, function_calls: list[FunctionCall], *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        hooks = current_hooks.get()
        asking: list[FunctionCall] = []
        # Calls that run after a pause have been asked about before it.
        if hooks is not None and not kwargs.get("skip_pause_check"):
            asking = [call for call in function_calls if _needs_approval(hooks, call)]
        others = [call for call in function_calls if call not in asking]
        try:
            # First, because Agno iterates generators only after the calls beside them, and those may wait.
            async for item in _iterate_calls(super().arun_function_calls(others, *args, **kwargs)):
                yield item
            if hooks is not None and asking:
                count = kwargs.get("current_function_call_count", 0) + len(others)
                limit = kwargs.get("function_call_limit")
                # Agno itself rejects the calls above the agent's limit.
                allowed = asking if limit is None else asking[: max(0, limit - count)]
                for call in others:
                    # One that asks for values has not begun: it is stored, so that it goes on if these wait.
                    await hooks.turn.calls.start(_to_call(call), asks_first=True)
                await hooks.approve([_to_call(call) for call in allowed])
                kwargs["current_function_call_count"] = count
                if self.callboard_model_role != "main":
                    # Not by a pause: in a member, it would end the leader's call while the member's calls are open, and
                    # in a streamed run in a tool, the run. But Agno records approvals of a type only at a pause.
                    for call in [call for call in asking if call.function.approval_type is None]:
                        call.function = copy(call.function)
                        call.function.requires_confirmation = False
                async for item in _iterate_calls(super().arun_function_calls(asking, *args, **kwargs)):
                    yield item
        finally:
            # Agno itself leaves these tasks running if the run is stopped.
            iterating = hooks.iterating if hooks else {}
            tasks = [task for call in function_calls if (task := iterating.get(call.call_id or ""))]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def arun_function_call(self, function_call: FunctionCall) -> tuple[Any, Timer, FunctionCall, Any]:
        hooks = current_hooks.get()
        if hooks is None:
            return await super().arun_function_call(function_call)
        call_id = function_call.call_id or ""
        timer = Timer()  # type: ignore[no-untyped-call] # Agno's has no types
        timer.start()
        if (ended_before := hooks.turn.calls.earlier_results.get(call_id)) is not None:
            timer.stop()
            function_call.result = ended_before
            return True, timer, function_call, FunctionExecutionResult(status="success", result=ended_before)
        name = function_call.function.name
        arguments = function_call.arguments or {}
        if self.callboard_model_role == "in a tool":
            # No event of Agno reports this start.
            await hooks.turn.calls.start(ToolCall(call_id, name, hooks.arguments.get(call_id, arguments)))

        function_call.function = _watch_arguments(hooks, function_call)
        ended: tuple[bool | AgentRunException, Timer, FunctionCall, FunctionExecutionResult] | None = None

        async def execute() -> object:
            nonlocal ended
            ended = await contain(super(_HookedModel, self).arun_function_call(function_call))
            # Only the result is searched for secrets: the objects around it hold the tool and its agent.
            return ended[3].result

        try:
            if (refused := hooks.refusals.get(call_id)) is not None:
                raise refused
            result = await hooks.turn.calls.run(
                ToolCall(call_id, name, arguments), lambda: asyncio.create_task(execute())
            )
        except ToolError as error:
            timer.stop()
            hooks.turn.calls.fail(call_id, error)
            function_call.error = hooks.turn.mask(f"Error: {error}")
            return False, timer, function_call, FunctionExecutionResult(status="failure", error=function_call.error)
        assert ended is not None, "it has run"
        success, _, _, execution = ended
        if success is not True:
            function_call.error = hooks.turn.mask(function_call.error or str(success))
            hooks.turn.calls.fail(call_id, function_call.error)
            if isinstance(success, StopAgentRun) and self.callboard_model_role == "main":
                # The run ends without another answer.
                hooks.turn.add_text(function_call.error)
        elif isinstance(items := function_call.result, AsyncIterator | Iterator):
            # A generator has only started: Agno iterates it and reports its end.
            function_call.result = _iterate(hooks, call_id, function_call.function, items)
        else:
            execution.result = function_call.result = result
            shown = to_tool_result(result)
            hooks.turn.calls.complete(call_id, shown)
            await hooks.turn.events.wait_until_processed()
        return ended


def _needs_approval(hooks: AgnoHooks, call: FunctionCall) -> bool:
    return bool(call.function.requires_confirmation) or hooks.turn.calls.approval.names(call.function.name)


def _to_call(call: FunctionCall) -> ToolCall:
    return ToolCall(call.call_id or "", call.function.name, call.arguments or {})


async def _iterate_calls(run: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async with aclosing(cast(AsyncGenerator[Any, None], run)):
        async for item in run:
            yield item


def _watch_arguments(hooks: AgnoHooks, call: FunctionCall) -> Function:
    """Return the call's function with an innermost hook, which shows arguments that the author's hooks have changed."""
    function = call.function
    if not function.tool_hooks and function.pre_hook is None:
        return function
    given = deepcopy(call.arguments)

    async def watch(function_call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if call.arguments != given:
            await hooks.turn.calls.change_arguments(call.call_id or "", call.arguments or {})
        return await function_call(**arguments)

    def watch_in_thread(function_call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if call.arguments != given and (tool := current_tool.get()) is not None:
            tool.wait_for(hooks.turn.calls.change_arguments(call.call_id or "", call.arguments or {}))
        return function_call(**arguments)

    hooks_of_author = function.tool_hooks or []
    # Agno runs a function with an asynchronous hook in the event loop.
    is_async = any(map(iscoroutinefunction, [function.entrypoint, *hooks_of_author]))
    is_async = is_async or isasyncgenfunction(function.entrypoint)
    watched = copy(function)
    watched.tool_hooks = [*hooks_of_author, watch if is_async else watch_in_thread]
    return watched


_AGNO_FIELDS = frozenset(Function.model_fields) - {"name", "description", "parameters", "strict"}
"""The fields of a function that only Agno uses. Mistral refuses a request that contains one."""


def _remove_agno_fields(tool: Any) -> Any:
    match tool:
        case {"function": {} as function}:
            known = {name: value for name, value in function.items() if name not in _AGNO_FIELDS}
            return {**tool, "function": known}
        case _:
            return tool


def _hooks_of_run(request: dict[str, Any]) -> AgnoHooks | None:
    """Return the hooks if the request belongs to the turn's own run.

    Agno's reasoning and the members of a team have runs of their own.
    """
    hooks = current_hooks.get()
    run = request.get("run_response")
    return hooks if hooks is not None and run is not None and run.run_id == hooks.turn.context.run_id else None


async def _add_user_message(model: _HookedModel, request: dict[str, Any]) -> None:
    """Add the user's messages to the run to the conversation, so that later requests have them too."""
    hooks = _hooks_of_run(request) if model.callboard_reads_messages else None
    if hooks is None:
        return
    if text := await hooks.turn.take_message():
        hooks.user_messages.append(Message(role="user", content=text))
    # Agno begins again without them if it retries the run.
    known = {message.id for message in request["messages"]}
    request["messages"] += [message for message in hooks.user_messages if message.id not in known]


def _take_unfinished_answer(request: dict[str, Any]) -> ModelResponse | None:
    """Return the answer that an earlier server has received, if the request is the run's first; otherwise None.

    The request's message gets its calls.
    """
    hooks = _hooks_of_run(request)
    if hooks is None:
        return None
    answer = hooks.turn.take_unfinished_answer()
    if answer is None:
        return None
    hooks.turn.note_tools(map(_remove_agno_fields, request.get("tools") or ()))
    # Not in the response, whose calls have another form in each class of models.
    request["assistant_message"].tool_calls = deepcopy(answer["tool_calls"])
    return ModelResponse(content=content_text(answer.get("content")))


@contextmanager
def _hooked_request(model: _HookedModel, request: dict[str, Any]) -> Iterator[Callable[[ModelResponse], None]]:
    """Prepare one model request; the caller passes each piece of the answer to the yielded function.

    Observers are notified, tokens are counted, and a failure is recorded.
    """
    request["messages"] = merge_system_messages(request["messages"])
    if request.get("tools"):
        request["tools"] = [_remove_agno_fields(tool) for tool in request["tools"]]
    hooks = current_hooks.get()
    if hooks is None:
        yield lambda _: None
        return
    turn = hooks.turn
    turn.note_tools(request.get("tools") or ())
    is_main = model.callboard_model_role == "main"
    hooks.failure = None
    if is_main and hooks.has_failed_answer:
        hooks.has_failed_answer = False
        hooks.has_dropped_answer = True
        turn.rewind()
    if turn.calls.is_over_limit:
        request |= {"tools": None, "tool_choice": None}
    counted: list[MessageMetrics] = []
    with turn.observe_request(model.id, len(request["messages"]), len(request.get("tools") or ())) as observed:

        def receive(piece: ModelResponse) -> None:
            observed.receive()
            if piece.response_usage is not None:
                counted.append(piece.response_usage)

        try:
            yield receive
        except AgnoError as error:
            hooks.failure = model_error(error, hooks.agent_id, always=True)
            hooks.has_failed_answer = hooks.has_failed_answer or is_main
            raise
        except RetryableModelProviderError:
            hooks.has_failed_answer = hooks.has_failed_answer or is_main
            raise
        if counted:
            usage = sum(counted, start=MessageMetrics())
            observed.usage = turn.add_usage(
                usage.input_tokens,
                usage.output_tokens,
                cached_tokens=usage.cache_read_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )


async def _iterate(
    hooks: AgnoHooks, call_id: str, function: Function, items: AsyncIterator[object] | Iterator[object]
) -> AsyncIterator[object]:
    """Yield the items of a tool that is a generator, within the limits of its call."""
    turn = hooks.turn
    # The tools with which a team's leader starts members are generators too, and members may take longer than a tool.
    runs_members = getattr(function.entrypoint, "__module__", "").startswith("agno.team.")
    end = object()
    if (task := asyncio.current_task()) is not None:
        hooks.iterating[call_id] = task
    try:
        async with turn.calls.performing(call_id, function.name, is_limited=not runs_members):
            steps = items if isinstance(items, AsyncIterator) else _read_in_thread(items)
            while (item := await contain(anext(steps, end))) is not end:
                yield _remove_text(await mask_result(item, turn.context.redaction))
    except ToolError as error:
        turn.calls.fail(call_id, error)
        raise ToolError(turn.mask(f"Error: {error}")) from error
    except RunCancelledException:
        raise
    except Exception as error:
        # Agno sends its text to the model.
        raise ToolError(turn.mask(error_text(error))) from error
    finally:
        hooks.iterating.pop(call_id, None)


async def _read_in_thread(items: Iterator[object]) -> AsyncIterator[object]:
    """Yield the items, all read in one thread and one context: a connection of SQLite works only in its thread."""
    end = object()
    thread = ThreadPoolExecutor(1)
    context = copy_context()
    loop = asyncio.get_running_loop()
    try:
        while (item := await loop.run_in_executor(thread, context.run, _take_next, items, end)) is not end:
            yield item
    finally:
        thread.shutdown(wait=False)


def _take_next(items: Iterator[object], end: object) -> object:
    # Contained in the thread, because a task closes an asynchronous generator that awaits a future's `GeneratorExit`.
    with containing():
        return next(items, end)


def _remove_text(item: object) -> object:
    """Return an item of a generator; an event is returned without its text.

    Agno appends the text of an event to the tool's result: https://github.com/agno-agi/agno/issues/8769
    """
    if isinstance(item, BaseRunOutputEvent) and not hasattr(item, "parent_run_id"):
        # A team reads this attribute of each event of its members: https://github.com/agno-agi/agno/issues/5379
        vars(item)["parent_run_id"] = None
    if not isinstance(item, CustomEvent) or type(item).__str__ is not object.__str__:
        return item
    event = copy(item)
    event.__class__ = _make_silent_class(type(item))  # type: ignore[arg-type] # a class is hashable
    return event


@cache
def _make_silent_class(kind: type[CustomEvent]) -> type[CustomEvent]:
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__str__": lambda _: ""})


def _reject(hooks: AgnoHooks, call: ChatDict, reason: str, functions: dict[str, Function]) -> None:
    name = str(call["function"].get("name"))
    arguments = hooks.arguments[call["id"]]
    there_are = ", ".join(functions) or "none"
    unknown = UnknownTool(f"There is no tool '{name}'. The tools are: {there_are}.")
    error = InvalidArguments(reason) if name in functions else unknown
    hooks.turn.calls.reject(RejectedCall(ToolCall(call["id"], name, arguments), error))
    try:
        json.loads(arguments)
    except ValueError:
        # Chat templates parse the arguments of earlier calls, and some endpoints fail if they are not JSON.
        call["function"]["arguments"] = "{}"
