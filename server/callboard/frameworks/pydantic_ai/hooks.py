"""The view of a run of pydantic-ai: capabilities around its requests and calls, and its events.

The run's events come a little late, and know nothing of ids: what must happen before a tool
runs, or between a model's answer and its calls, is done by the capabilities, which hold the calls to the
server's rules. The rest is translated from the events.
"""

import asyncio
from collections.abc import AsyncIterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import (
    AgentStreamEvent,
    InstructionPart,
    ModelRequest,
    ModelResponse,
    PartStartEvent,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDefinition,
)
from pydantic_ai.tools import ToolDenied as NotApproved
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from typing_extensions import override

from callboard.calls import RejectedCall, ToolCall, error_text
from callboard.errors import InvalidArguments, ToolDenied, ToolError, ToolLimit, UnknownTool
from callboard.frameworks.failures import tool_error
from callboard.frameworks.pydantic_ai.messages import result_of, without_system_prompts
from callboard.frameworks.turn import Turn
from callboard.observers import ObservedRequest

Arguments = dict[str, Any]

RETRIES = 1_000_000
"""The times that a call may fail: without end, as the turn's own limits end it first, and end it with an answer."""


class TurnOver(Exception):
    """The model asks for tools though it has had its last answer."""


turn_of_tool: ContextVar[Turn | None] = ContextVar("callboard_pydantic_ai_turn_of_tool", default=None)
"""The turn of the tool that is running."""


@dataclass
class PatientToolset(WrapperToolset[Any]):
    """An agent's tools, none of which ends the run by being called wrongly.

    `retries` is filled with the limits that the tools' author gave them, by the tools' names.
    """

    retries: dict[str, int] = field(default_factory=dict)

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools. A tool without a limit of its own may fail as often as the model likes."""
        tools = await super().get_tools(replace(ctx, max_retries=RETRIES))
        self.retries |= {name: tool.max_retries for name, tool in tools.items() if tool.max_retries < RETRIES}
        return {name: replace(tool, max_retries=RETRIES) for name, tool in tools.items()}


class Hooks(AbstractCapability[Any]):
    """The hooks of a run, which tell the calls of its last answer, as the model wrote them, and which have begun."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.output_tools: set[str] = set()
        self._offered: set[str] = set()
        self._calls: dict[str, ToolCallPart] = {}
        self._ids: dict[int, str] = {}
        self._started: set[str] = set()
        self._retries: dict[str, int] = {}
        self._exhausted: set[str] = set()
        self._asked_last = False
        self.has_rejected = False
        """The last answer was refused, by a validator or since it does not fit, and is to be taken back."""

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Stand around the user's own: what theirs make of a call is its end."""
        return CapabilityOrdering(position="outermost")

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Return the agent's tools, none of which ends the run by being called wrongly."""
        return PatientToolset(toolset, self._retries)

    @override
    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Return no tools over the limit: the model is asked for an answer."""
        return [] if self.turn.calls.is_over_limit else tool_defs

    @override
    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Begin a new answer."""
        offered = request_context.model_request_parameters
        last = request_context.messages[-1].parts if request_context.messages else ()
        self.has_rejected = any(_asks_again(part, self.output_tools) for part in last)
        self.output_tools = {tool.name for tool in offered.output_tools}
        self._offered = {tool.name for tool in offered.function_tools}
        self._ids.clear()
        self._asked_last = self.turn.calls.is_over_limit
        if ctx.tool_manager is not None:
            # For tools that there are not; for those that there are, see `PatientToolset`.
            ctx.tool_manager.default_max_retries = RETRIES
        return request_context

    @override
    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Say the answer as the agent's own capabilities have left it, and give its calls the ids that the store has.

        Raises `TurnOver` where there may be no calls.
        """
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        if not text.strip().endswith(self.turn.draft.strip()):
            # A capability of the agent's has replaced it.
            self.turn.replace(text)
        for index, call in enumerate(response.parts):
            if not isinstance(call, ToolCallPart) or call.tool_name in self.output_tools:
                continue
            if self._asked_last:
                raise TurnOver
            call.tool_call_id = self.call_id(index, call.tool_call_id)
            self._calls[call.tool_call_id] = call
        return response

    def call_id(self, index: int, given: str) -> str:
        """Return the id of the call that is this part of the model's answer."""
        if index not in self._ids:
            self._ids[index] = self.turn.claim(given)
        return self._ids[index]

    @override
    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Any,
        handler: Any,
    ) -> Arguments:
        """Begin a call whose arguments fit: calls are checked in their order, before any of them runs."""
        valid: Arguments = await handler(args)
        await self._start(call)
        return valid

    @override
    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Arguments,
        handler: Any,
    ) -> Any:
        """Run a tool as the built-in loop does; what the model is told of a call that it may not run is its result."""
        retries = self._retries.get(call.tool_name)
        if retries is not None and ctx.retry > retries:
            # Kept: pydantic-ai takes the refusal for a success, and counts from 0 again.
            self._exhausted.add(call.tool_name)
        if call.tool_name in self._exhausted:
            return self._fail(call, ToolLimit(f"Not run: {call.tool_name} has failed too often. Go on without it."))
        try:
            value = await self.turn.calls.run(
                ToolCall(call.tool_call_id, call.tool_name, args), lambda: self._run(handler, args)
            )
            result = result_of(value)
        except ToolError as error:
            return self._fail(call, error)
        self.turn.calls.complete(call.tool_call_id, result)
        return value

    @override
    async def on_tool_execute_error(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Arguments,
        error: Exception,
    ) -> str:
        """Tell the model of a tool that raises; by itself it would end the run."""
        return self._fail(call, tool_error(error))

    def fail(self, call_id: str, reason: str, *, denied: bool) -> None:
        """End a call that pydantic-ai gives back to its model, before or after its start."""
        if call_id in self._started:
            self.turn.calls.fail(call_id, ToolDenied(reason) if denied else ToolError(reason))
        elif (call := self._calls.get(call_id)) is not None:
            kind = InvalidArguments if call.tool_name in self._offered else UnknownTool
            self.turn.calls.reject(RejectedCall(ToolCall(call_id, call.tool_name, call.args or {}), kind(reason)))

    async def approve(self, call: ToolCallPart) -> ToolApproved | NotApproved:
        """Ask the user about a call that its tool wants asked about."""
        await self._start(call)
        try:
            await self.turn.calls.approve(ToolCall(call.tool_call_id, call.tool_name, call.args_as_dict()))
        except ToolError as error:
            return NotApproved(self._fail(call, error))
        return ToolApproved()

    async def refuse_to_run_elsewhere(self, call: ToolCallPart) -> str:
        """End a call of a tool that is none of the agent's own to run; return what the model is told."""
        await self._start(call)
        return self._fail(call, ToolError(f"Not run: {call.tool_name} is to be run outside of its agent."))

    async def _run(self, handler: Any, args: Arguments) -> Any:
        token = turn_of_tool.set(self.turn)
        try:
            return await handler(args)
        finally:
            turn_of_tool.reset(token)

    async def _start(self, call: ToolCallPart) -> None:
        self._started.add(call.tool_call_id)
        await self.turn.calls.start(ToolCall(call.tool_call_id, call.tool_name, call.args or {}))

    def _fail(self, call: ToolCallPart, error: ToolError) -> str:
        self.turn.calls.fail(call.tool_call_id, error)
        return self.turn.mask(f"Error: {error}")


def _asks_again(part: object, output_tools: set[str]) -> bool:
    """Return whether a part of a request refuses the answer before it, and not a call of a tool."""
    is_retry = isinstance(part, RetryPromptPart) or getattr(part, "retry", None) is not None
    tool_name = getattr(part, "tool_name", None)
    return is_retry and (tool_name is None or tool_name in output_tools)


class InnerHooks(Hooks):
    """The same for an agent in a tool: its events are its tool's, so the ends of all its calls are told here."""

    @override
    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: Arguments,
        handler: Any,
    ) -> Any:
        """Run a tool, whose failure its agent's events alone would tell."""
        try:
            return await super().wrap_tool_execute(ctx, call=call, tool_def=tool_def, args=args, handler=handler)
        except ModelRetry as error:
            self.turn.calls.fail(call.tool_call_id, ToolError(error_text(error) or type(error).__name__))
            raise


class ModelRequests(AbstractCapability[Any]):
    """The requests of a run to its model, as they are sent: what is told of them, and what they cost."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._request: ObservedRequest | None = None

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Stand after all others."""
        return CapabilityOrdering(position="innermost")

    @override
    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Tell of a request that begins."""
        parameters = request_context.model_request_parameters
        # Of each request every part is a message of its own.
        messages = sum(len(one.parts) if isinstance(one, ModelRequest) else 1 for one in request_context.messages)
        self._request = self.turn.ask_model(
            request_context.model.model_name,
            messages + bool(parameters.instruction_parts),
            len(parameters.function_tools) + len(parameters.output_tools),
        )
        return request_context

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count what the request has cost, and tell of its answer."""
        usage = self.turn.add_usage(
            response.usage.input_tokens,
            response.usage.output_tokens,
            cached_tokens=response.usage.cache_read_tokens,
            reasoning_tokens=response.usage.details.get("reasoning_tokens"),
        )
        if self._request is not None:
            details = response.provider_details or {}
            self._request.finish_reason = details.get("finish_reason") or response.finish_reason
            self._request.usage = usage
            self._request.end()
        return response

    @override
    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Tell of a request that failed."""
        if self._request is not None:
            self._request.end(error)
        raise error


class Client(ModelRequests):
    """The client's part in a run: its system messages, and its user's answers where the agent's own leaves any open."""

    def __init__(self, hooks: Hooks, instructions: str) -> None:
        super().__init__(hooks.turn)
        self._hooks = hooks
        self._instructions = instructions

    @override
    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the client's system messages and the agent's as one: many chat templates refuse a second."""
        if self._instructions:
            parameters = request_context.model_request_parameters
            prompts, request_context.messages = without_system_prompts(request_context.messages)
            own = [*prompts, *(part.content for part in parameters.instruction_parts or ())]
            whole = InstructionPart("\n\n".join([*own, self._instructions]))
            request_context.model_request_parameters = replace(parameters, instruction_parts=[whole])
        return await super().before_model_request(ctx, request_context)

    @override
    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        """Note the first piece of an answer, at the moment that it comes."""
        async for event in stream:
            if isinstance(event, PartStartEvent) and self._request is not None:
                self._request.receive()
            yield event

    @override
    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Ask for all approvals at once; what is to be run elsewhere is not run."""
        answers = await asyncio.gather(*(self._hooks.approve(call) for call in requests.approvals))
        return requests.build_results(
            approvals={call.tool_call_id: answer for call, answer in zip(requests.approvals, answers, strict=True)},
            calls={call.tool_call_id: await self._hooks.refuse_to_run_elsewhere(call) for call in requests.calls},
        )
