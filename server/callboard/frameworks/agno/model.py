"""A model of Agno's that lets its calls be watched, and holds them to the server's rules.

Agno's events say too little: a call's end comes with its batch's, calls that cannot be run
have no event at all, and an error is a text. But every call of an agent passes through a few
methods of its model, so the agent is given a copy of its model with these in front.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import cache
from typing import Any

from agno.agent import Agent
from agno.exceptions import AgnoError
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.models.utils import get_model
from agno.team import Team
from agno.tools.function import Function, FunctionCall, FunctionExecutionResult
from agno.utils.timer import Timer

from callboard.errors import InvalidArguments, ModelError, ToolError, ToolLimit, UnknownTool
from callboard.frameworks.agno.media import result_of
from callboard.frameworks.agno.messages import with_one_system_message
from callboard.frameworks.failures import model_error
from callboard.frameworks.turn import Turn
from callboard.models import ChatDict

AgnoAgent = Agent | Team


class Watch:
    """What a run's models tell of it: its turn, the arguments as they were written, how the last request failed."""

    def __init__(self, turn: Turn, agent_id: str) -> None:
        self.turn = turn
        self.agent_id = agent_id
        self.arguments: dict[str, str] = {}
        self.failure: ModelError | None = None


current_watch: ContextVar[Watch | None] = ContextVar("callboard_agno_watch", default=None)


def with_watched_models(agent: AgnoAgent) -> AgnoAgent:
    """The agent, or the team with its members, on copies of its models whose calls are seen by `current_watch`."""
    if isinstance(agent.model, _WatchedModel):
        return agent
    # Before the copy: what remembers and sums up beside the run keeps the model that nobody watches.
    if isinstance(agent, Team):
        agent.initialize_team()
    else:
        agent.initialize_agent()
    twin = copy(agent)
    if (model := get_model(agent.model)) is not None:
        twin.model = _watched(model)
    if isinstance(twin, Team) and isinstance(twin.members, list):
        twin.members = [with_watched_models(one) if isinstance(one, Agent | Team) else one for one in twin.members]
    return twin


def _watched(model: Model) -> Model:
    twin = copy(model)
    twin.__class__ = _watched_kind(type(model))
    return twin


@cache
def _watched_kind(kind: type[Model]) -> type[Model]:
    # Of the same name: Agno knows some models by it.
    return type(kind.__name__, (_WatchedModel, kind), {"__module__": kind.__module__})


class _WatchedModel(Model):
    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        with _request(kwargs):
            return await super().ainvoke(*args, **kwargs)  # type: ignore[safe-super] # the user's model has one

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        with _request(kwargs):
            async for delta in super().ainvoke_stream(*args, **kwargs):  # type: ignore[safe-super] # the user's model has one
                yield delta

    def get_function_calls_to_run(
        self, assistant_message: Message, messages: list[Message], functions: dict[str, Function] | None = None
    ) -> list[FunctionCall]:
        watch = current_watch.get()
        if watch is None:
            return super().get_function_calls_to_run(assistant_message, messages, functions)
        if watch.turn.over_limit:
            # It was offered none.
            assistant_message.tool_calls = None
            return []
        calls = assistant_message.tool_calls or []
        for call in calls:
            # Here, before anything else knows them: the model is sent the ids that the store has.
            call["id"] = watch.turn.claim(call.get("id"))
            watch.arguments[call["id"]] = call["function"].get("arguments") or ""
        said = len(messages)
        runnable = super().get_function_calls_to_run(assistant_message, messages, functions)
        reasons = {message.tool_call_id: str(message.content) for message in messages[said:]}
        for call in calls:
            if (reason := reasons.get(call["id"])) is not None:
                _refuse(watch, call, reason, functions or {})
        return runnable

    def create_tool_call_limit_error_result(self, function_call: FunctionCall) -> Message:
        told = super().create_tool_call_limit_error_result(function_call)
        if (watch := current_watch.get()) is not None:
            call_id, name = function_call.call_id or "", function_call.function.name
            watch.turn.refuse(call_id, name, watch.arguments.get(call_id, ""), ToolLimit(f"Not run: {told.content}"))
        return told

    async def arun_function_call(self, function_call: FunctionCall) -> tuple[Any, Timer, FunctionCall, Any]:
        watch = current_watch.get()
        if watch is None:
            return await super().arun_function_call(function_call)
        call_id = function_call.call_id or ""
        timer = Timer()  # type: ignore[no-untyped-call] # Agno's has no types
        timer.start()
        try:
            ended = await watch.turn.run_tool(
                call_id,
                function_call.function.name,
                function_call.arguments or {},
                lambda: super(_WatchedModel, self).arun_function_call(function_call),
            )
        except ToolError as error:
            timer.stop()
            watch.turn.fail(call_id, error)
            function_call.error = f"Error: {error}"
            return False, timer, function_call, FunctionExecutionResult(status="failure", error=function_call.error)
        success, _, _, execution = ended
        if success is not True:
            watch.turn.fail(call_id, function_call.error or str(success))
        elif isinstance(items := function_call.result, AsyncIterator | Iterator):
            # It has only begun: Agno reads it, and says when it has ended.
            function_call.result = _reporting(watch.turn, call_id, items)
        else:
            result = result_of(execution.result)
            watch.turn.complete(call_id, result.text, result.files)
            await watch.turn.told()
        return ended


@contextmanager
def _request(request: dict[str, Any]) -> Iterator[None]:
    """One request to the model: what it is sent, and how it fails."""
    request["messages"] = with_one_system_message(request["messages"])
    watch = current_watch.get()
    if watch is None:
        yield
        return
    watch.failure = None
    if watch.turn.over_limit:
        request |= {"tools": None, "tool_choice": None}
    try:
        yield
    except AgnoError as error:
        watch.failure = model_error(error, watch.agent_id, always=True)
        raise


async def _reporting(
    turn: Turn, call_id: str, items: AsyncIterator[object] | Iterator[object]
) -> AsyncIterator[object]:
    """A generator that a tool is, with `report_status` bound to its call."""
    with turn.reporting(call_id):
        if isinstance(items, AsyncIterator):
            async for item in items:
                yield item
        else:
            for item in items:
                yield item


def _refuse(watch: Watch, call: ChatDict, reason: str, functions: dict[str, Function]) -> None:
    name, arguments = str(call["function"].get("name")), watch.arguments[call["id"]]
    there_are = ", ".join(functions) or "none"
    unknown = UnknownTool(f"There is no tool '{name}'. The tools are: {there_are}.")
    watch.turn.refuse(call["id"], name, arguments, InvalidArguments(reason) if name in functions else unknown)
    try:
        json.loads(arguments)
    except ValueError:
        # Chat templates parse the arguments of earlier calls, and some endpoints fail where they cannot.
        call["function"]["arguments"] = "{}"
