"""A model of Agno's that tells of its requests and calls, and holds the calls to the server's rules.

Agno's events say too little: a call's end comes with its batch's, calls that cannot be run
have no event at all, and an error is a text. But every call of an agent passes through a few
methods of its model, so the agent is given a copy of its model with these in front.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import cache, wraps
from typing import Any, ClassVar, Literal

from agno.agent import Agent
from agno.exceptions import AgentRunException, AgnoError, RetryableModelProviderError
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

from callboard.calls import RejectedCall, ToolCall, contain, mask_result, running_tool
from callboard.errors import InvalidArguments, ModelError, ToolError, ToolLimit, UnknownTool
from callboard.frameworks.agno.messages import result_of, with_one_system_message
from callboard.frameworks.failures import model_error
from callboard.frameworks.turn import Turn
from callboard.models import ChatDict

AgnoAgent = Agent | Team


class Hooks:
    """The facts that a run's models tell: its turn, the arguments as they were written, how the last request failed.

    `draft_failed`: the model that speaks has failed, and if it or another is asked again, what it said is no answer.
    """

    def __init__(self, turn: Turn, agent_id: str) -> None:
        self.turn = turn
        self.agent_id = agent_id
        self.arguments: dict[str, str] = {}
        self.failure: ModelError | None = None
        self.draft_failed = False
        self.has_dropped = False
        """A draft was dropped, which Agno may still have in the run's content."""


current_hooks: ContextVar[Hooks | None] = ContextVar("callboard_agno_hooks", default=None)


Role = Literal["speaker", "member", "in a tool"]
"""The part of an agent: its words are the answer, or its leader's to repeat, or its run is none of the adapter's."""


def with_hooked_models(agent: AgnoAgent, role: Role = "speaker") -> AgnoAgent:
    """Return the agent, or the team with its members, on copies of its models that `current_hooks` are told of."""
    if isinstance(agent.model, _HookedModel):
        return agent
    # Before the copy: what remembers and sums up beside the run keeps the model that nobody hooks.
    if isinstance(agent, Team):
        agent.initialize_team()
    else:
        agent.initialize_agent()
    twin = copy(agent)
    for name in ("model", "output_model", "parser_model"):
        if (model := get_model(getattr(agent, name))) is not None:
            setattr(twin, name, _hook_model(model, role))
    if (fallbacks := twin.fallback_config) is not None:
        hooked: dict[str, Any] = {
            name: [_hook_model(one, role) if isinstance(one, Model) else one for one in getattr(fallbacks, name)]
            for name in ("on_error", "on_rate_limit", "on_context_overflow")
        }
        twin.fallback_config = replace(fallbacks, **hooked)
    if isinstance(twin, Team) and isinstance(twin.members, list):
        others: Role = "in a tool" if role == "in a tool" else "member"
        twin.members = [
            with_hooked_models(one, others) if isinstance(one, Agent | Team) else one for one in twin.members
        ]
    return twin


def hook_agents_in_tools() -> None:
    """Have agents and teams that a tool asks be seen too; do nothing where no turn of ours is running."""
    for kind in (Agent, Team):
        if not hasattr(kind.arun, "__wrapped__"):
            kind.arun = _hook_arun(kind.arun)  # type: ignore[method-assign] # in front of it
            kind.run = _hook_run(kind.run)  # type: ignore[method-assign] # in front of it


def _hook_arun(arun: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(arun)
    def run(agent: AgnoAgent, *args: Any, **kwargs: Any) -> Any:
        if running_tool.get() is not None and current_hooks.get() is not None:
            agent = with_hooked_models(agent, "in a tool")
        return arun(agent, *args, **kwargs)

    return run


def _hook_run(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def run_in_the_loop(agent: AgnoAgent, *args: Any, **kwargs: Any) -> Any:
        tool = running_tool.get()
        if tool is None or current_hooks.get() is None:
            return run(agent, *args, **kwargs)
        tool.refuse_to_block(f"run() of the agent '{agent.name or agent.id}'", "use `await agent.arun(…)` there")
        # Agno's types do not say which of the two it is.
        asked: Any = agent.arun(*args, **kwargs)
        return tool.iterate(asked) if isinstance(asked, AsyncIterator) else tool.wait_for(asked)

    return run_in_the_loop


def _hook_model(model: Model, role: Role) -> Model:
    twin = copy(model)
    twin.__class__ = _make_hooked_kind(type(model))
    vars(twin)["callboard_role"] = role
    return twin


@cache
def _make_hooked_kind(kind: type[Model]) -> type[Model]:
    # Of the same name: Agno knows some models by it.
    return type(kind.__name__, (_HookedModel, kind), {"__module__": kind.__module__})


class _HookedModel(Model):
    callboard_role: ClassVar[Role] = "speaker"

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        with _request(self, kwargs) as receive:
            response = await super().ainvoke(*args, **kwargs)  # type: ignore[safe-super] # the user's model has one
            receive(response)
            return response

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        with _request(self, kwargs) as receive:
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
            # It was offered none.
            assistant_message.tool_calls = None
            return []
        calls = assistant_message.tool_calls or []
        for call in calls:
            # Here, before anything else knows them: the model is sent the ids that the store has.
            call["id"] = hooks.turn.claim(call.get("id"))
            hooks.arguments[call["id"]] = call["function"].get("arguments") or ""
        said = len(messages)
        runnable = super().get_function_calls_to_run(assistant_message, messages, functions)
        reasons = {message.tool_call_id: str(message.content) for message in messages[said:]}
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

    async def arun_function_call(self, function_call: FunctionCall) -> tuple[Any, Timer, FunctionCall, Any]:
        hooks = current_hooks.get()
        if hooks is None:
            return await super().arun_function_call(function_call)
        call_id = function_call.call_id or ""
        timer = Timer()  # type: ignore[no-untyped-call] # Agno's has no types
        timer.start()
        name = function_call.function.name
        arguments = function_call.arguments or {}
        if self.callboard_role == "in a tool":
            # Nobody else says so.
            await hooks.turn.calls.start(ToolCall(call_id, name, hooks.arguments.get(call_id, arguments)))

        ended: tuple[bool | AgentRunException, Timer, FunctionCall, FunctionExecutionResult] | None = None

        async def execute() -> object:
            nonlocal ended
            ended = await contain(super(_HookedModel, self).arun_function_call(function_call))
            # It alone is searched for secrets: around it stand the tool, and its agent.
            return ended[3].result

        try:
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
        elif isinstance(items := function_call.result, AsyncIterator | Iterator):
            # It has only begun: Agno reads it, and says when it has ended.
            function_call.result = _read_generator(hooks.turn, call_id, items)
        else:
            execution.result = function_call.result = result
            shown = result_of(result)
            hooks.turn.calls.complete(call_id, shown)
            await hooks.turn.events.wait_until_written()
        return ended


_AGNOS_FIELDS = frozenset(Function.model_fields) - {"name", "description", "parameters", "strict"}
"""The fields of a function that only Agno knows. Mistral refuses a request that has one."""


def _without_agnos_fields(tool: Any) -> Any:
    match tool:
        case {"function": {} as function}:
            known = {name: value for name, value in function.items() if name not in _AGNOS_FIELDS}
            return {**tool, "function": known}
        case _:
            return tool


@contextmanager
def _request(model: _HookedModel, request: dict[str, Any]) -> Iterator[Callable[[ModelResponse], None]]:
    """Prepare one request to the model, within this context; what is yielded is to be given each piece of the answer.

    Observers are told of it, its tokens are counted, and how it fails is noted.
    """
    request["messages"] = with_one_system_message(request["messages"])
    if request.get("tools"):
        request["tools"] = [_without_agnos_fields(tool) for tool in request["tools"]]
    hooks = current_hooks.get()
    if hooks is None:
        yield lambda _: None
        return
    turn = hooks.turn
    speaks = model.callboard_role == "speaker"
    hooks.failure = None
    if speaks and hooks.draft_failed:
        hooks.draft_failed = False
        hooks.has_dropped = True
        turn.rewind()
    if turn.calls.is_over_limit:
        request |= {"tools": None, "tool_choice": None}
    counted: list[MessageMetrics] = []
    with turn.ask_model(model.id, len(request["messages"]), len(request.get("tools") or ())) as observed:

        def receive(piece: ModelResponse) -> None:
            observed.receive()
            if piece.response_usage is not None:
                counted.append(piece.response_usage)

        try:
            yield receive
        except AgnoError as error:
            hooks.failure = model_error(error, hooks.agent_id, always=True)
            hooks.draft_failed = hooks.draft_failed or speaks
            raise
        except RetryableModelProviderError:
            hooks.draft_failed = hooks.draft_failed or speaks
            raise
        if counted:
            usage = sum(counted, start=MessageMetrics())
            observed.usage = turn.add_usage(
                usage.input_tokens,
                usage.output_tokens,
                cached_tokens=usage.cache_read_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )


async def _read_generator(
    turn: Turn, call_id: str, items: AsyncIterator[object] | Iterator[object]
) -> AsyncIterator[object]:
    """Yield a generator that a tool is, with `report_status` bound to its call."""
    with turn.calls.reporting(call_id):
        if isinstance(items, AsyncIterator):
            async for item in items:
                yield _without_text(await mask_result(item, turn.context.redaction))
        else:
            for item in items:
                yield _without_text(await mask_result(item, turn.context.redaction))


def _without_text(item: object) -> object:
    """Return what a generator yields; an event as one whose text is empty.

    Agno appends the text of an event to the tool's result: https://github.com/agno-agi/agno/issues/8769
    """
    if isinstance(item, BaseRunOutputEvent) and not hasattr(item, "parent_run_id"):
        # A team reads it of each event of its members: https://github.com/agno-agi/agno/issues/5379
        vars(item)["parent_run_id"] = None
    if not isinstance(item, CustomEvent) or type(item).__str__ is not object.__str__:
        return item
    event = copy(item)
    event.__class__ = _make_silent_kind(type(item))  # type: ignore[arg-type] # a class is hashable
    return event


@cache
def _make_silent_kind(kind: type[CustomEvent]) -> type[CustomEvent]:
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__str__": lambda _: ""})


def _reject(hooks: Hooks, call: ChatDict, reason: str, functions: dict[str, Function]) -> None:
    name = str(call["function"].get("name"))
    arguments = hooks.arguments[call["id"]]
    there_are = ", ".join(functions) or "none"
    unknown = UnknownTool(f"There is no tool '{name}'. The tools are: {there_are}.")
    error = InvalidArguments(reason) if name in functions else unknown
    hooks.turn.calls.reject(RejectedCall(ToolCall(call["id"], name, arguments), error))
    try:
        json.loads(arguments)
    except ValueError:
        # Chat templates parse the arguments of earlier calls, and some endpoints fail where they cannot.
        call["function"]["arguments"] = "{}"
