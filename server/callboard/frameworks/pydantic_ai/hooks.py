"""Capabilities around the requests and calls of a pydantic-ai run and of the agents that its tools run.

They apply the server's limits.

The run's events come late and carry no usable ids. So everything that must happen before a tool runs, or between a
model's answer and its calls, is done here. `stream` translates the events for the rest.
"""

import asyncio
from collections.abc import AsyncIterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, wraps
from typing import Any

from pydantic_ai import Agent, ModelRequestNode
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ModelRetry, SkipModelRequest
from pydantic_ai.messages import (
    AgentStreamEvent,
    InstructionPart,
    ModelRequest,
    ModelResponse,
    PartStartEvent,
    RetryFeedbackPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import (
    DeferredToolKind,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDefinition,
)
from pydantic_ai.tools import ToolDenied as NotApproved
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import override

from callboard.calls import ToolCall
from callboard.calls.approval import show_values
from callboard.calls.call import RejectedCall
from callboard.calls.executor import error_text
from callboard.calls.forms import read_form
from callboard.calls.running_tool import current_tool
from callboard.errors import InvalidArguments, ToolDenied, ToolError, ToolLimit, UnknownTool
from callboard.frameworks.failures import tool_error
from callboard.frameworks.progress import report_progress
from callboard.frameworks.pydantic_ai.messages import to_answer, to_tool_result, without_system_prompts
from callboard.frameworks.pydantic_ai.toolset import RETRIES, UnlimitedRetriesToolset, make_openwebui_toolset
from callboard.frameworks.turn import AdapterTurn, CallLimitIgnored, ask_user
from callboard.observers import ObservedRequest

Arguments = dict[str, Any]

turn_of_tool: ContextVar[AdapterTurn | None] = ContextVar("callboard_pydantic_ai_turn_of_tool", default=None)
"""The turn whose tool is running in this context."""


class PydanticAIHooks(AbstractCapability[Any]):
    """Assigns ids to the calls of each answer, and starts, runs and ends them within the turn's limits."""

    def __init__(self, turn: AdapterTurn) -> None:
        self.turn = turn
        self.output_tools: set[str] = set()
        self._offered: set[str] = set()
        self._calls: dict[str, ToolCallPart] = {}
        self._ids: dict[int, str] = {}
        self._started: set[str] = set()
        self._arguments: dict[str, Arguments] = {}
        """The valid arguments of calls, as JSON objects, before the agent's capabilities get them."""
        self._retries: dict[str, int] = {}
        self._exhausted: set[str] = set()
        self._is_last_request = False
        self.has_rejected_answer = False
        """A validator or the output type refused the last answer, so it must be taken back."""

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Return a position outside of the user's own capabilities, so that a call ends with their result."""
        return CapabilityOrdering(position="outermost")

    @override
    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Return the agent's tools without pydantic-ai's limit of retries."""
        added = make_openwebui_toolset(self.turn)
        return UnlimitedRetriesToolset(toolset, self._retries, added, before_call=self._show_changes)

    @override
    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Offer no tools once the turn's limit of calls is reached, so that the model answers."""
        return [] if self.turn.calls.is_over_limit else tool_defs

    @override
    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Reset the state for a new answer, and record the tools that the request offers."""
        offered = request_context.model_request_parameters
        # After the last answer: the user's messages may follow a rejection.
        last = [part for message in request_context.messages[-2:] for part in message.parts]
        self.has_rejected_answer = any(_is_rejection(part, self.output_tools) for part in last)
        self.output_tools = {tool.name for tool in offered.output_tools}
        self._offered = {tool.name for tool in offered.function_tools}
        self.turn.note_tools(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}
            for tool in offered.function_tools
        )
        self._ids.clear()
        self._is_last_request = self.turn.calls.is_over_limit
        if ctx.tool_manager is not None:
            # Applies to unknown tools; `UnlimitedRetriesToolset` covers the others.
            ctx.tool_manager.default_max_retries = RETRIES
        if (answer := self.turn.take_unfinished_answer()) is not None:
            response = to_answer(answer)
            self._calls |= {part.tool_call_id: part for part in response.tool_calls}
            raise SkipModelRequest(response)
        return request_context

    @override
    async def after_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """Apply changes that the agent's own capabilities made to the text, and replace call ids by the store's ids.

        Raises `CallLimitIgnored` if the answer has calls although no tools were offered.
        """
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        if not text.strip().endswith(self.turn.draft.strip()):
            # A capability of the agent has replaced the text.
            self.turn.replace_text(text)
        for index, call in enumerate(response.parts):
            if not isinstance(call, ToolCallPart) or call.tool_name in self.output_tools:
                continue
            if self._is_last_request:
                raise CallLimitIgnored
            call.tool_call_id = self.call_id(index, call.tool_call_id)
            self._calls[call.tool_call_id] = call
        return response

    def call_id(self, index: int, given: str) -> str:
        """Return the store's id of the call at this index of the model's answer."""
        if index not in self._ids:
            self._ids[index] = self.turn.claim_call_id(given)
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
        """Start a call if its arguments are valid. Calls are validated in order before any of them runs."""
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
        """Run a tool within the turn's limits.

        If the call may not run, return the error for the model as its result.
        """
        if (ended := self.turn.calls.earlier_results.get(call.tool_call_id)) is not None:
            return ended
        self._arguments[call.tool_call_id] = show_values(args)
        retries = self._retries.get(call.tool_name)
        if retries is not None and ctx.retry > retries:
            # Remembered, because pydantic-ai counts the refusal as a success and restarts at 0.
            self._exhausted.add(call.tool_name)
        if call.tool_name in self._exhausted:
            return self._fail(call, ToolLimit(f"Not run: {call.tool_name} has failed too often. Continue without it."))
        try:
            value = await self.turn.calls.run(
                ToolCall(call.tool_call_id, call.tool_name, args), lambda: self._run_in_turn(handler, args)
            )
            result = to_tool_result(value)
        except ToolError as error:
            return self._fail(call, error)
        except ModelRetry as error:
            self.turn.calls.fail(call.tool_call_id, ToolError(error_text(error) or type(error).__name__))
            raise
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
        """Return a tool's exception as an error for the model. Without this hook it would end the run."""
        return self._fail(call, tool_error(error))

    def fail(self, call_id: str, reason: str, *, denied: bool) -> None:
        """End or reject a call whose failure pydantic-ai reports to the model, before or after its start."""
        if call_id in self._started:
            self.turn.calls.fail(call_id, ToolDenied(reason) if denied else ToolError(reason))
        elif (call := self._calls.get(call_id)) is not None:
            kind = InvalidArguments if call.tool_name in self._offered else UnknownTool
            self.turn.calls.reject(RejectedCall(ToolCall(call_id, call.tool_name, call.args or {}), kind(reason)))

    async def approve(self, calls: Sequence[ToolCallPart]) -> list[ToolApproved | NotApproved]:
        """Ask the user to approve calls whose tools require it."""
        self._started.update(call.tool_call_id for call in calls)
        refusals = await self.turn.calls.approve_all(
            [ToolCall(call.tool_call_id, call.tool_name, call.args_as_dict()) for call in calls]
        )
        return [
            NotApproved(self._fail(call, refused)) if refused else ToolApproved()
            for call, refused in zip(calls, refusals, strict=True)
        ]

    async def resolve(self, call: ToolCallPart, tool: ToolDefinition | None, kind: DeferredToolKind) -> Any:
        """Return the user's answer as the result of a call that is a question; other deferred calls fail."""
        await self._start(call)
        if kind == "question":
            try:
                return await _ask_for_result(call, tool, self.turn)
            except ToolError as error:
                return self._fail(call, error)
        return self._fail(
            call,
            ToolError(f"Not run: {call.tool_name} is to be run outside of its agent, which is not supported."),
        )

    async def _show_changes(self, call_id: str, args: Arguments) -> None:
        """Show arguments that a capability of the agent has changed; the user may be asked again."""
        if show_values(args) != self._arguments.get(call_id):
            await self.turn.calls.change_arguments(call_id, args)

    async def _run_in_turn(self, handler: Any, args: Arguments) -> Any:
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


async def _ask_for_result(call: ToolCallPart, tool: ToolDefinition | None, turn: AdapterTurn) -> Any:
    """Return the user's answer as the result of the call. The question is the call's arguments.

    The type that the tool returns is the form: the fields of an object, the choices of a `Literal`, otherwise a text.
    Raises `ToolError` if the user cannot be asked or does not answer, or if the object is not flat.
    """
    message = _write_arguments(call.args_as_dict()) or (tool and tool.description) or call.tool_name
    schema = (tool and tool.return_schema) or {}
    if not schema.get("properties"):
        return await ask_user(turn, "input", message, call.tool_call_id, choices=list(map(str, schema.get("enum", ()))))
    try:
        form = read_form(schema)
    except ValueError as error:
        raise ToolError(f"Not run: {call.tool_name} cannot ask the user, because {error}.") from error
    return await ask_user(turn, "form", message, call.tool_call_id, schema=form)


def _write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the only argument, or a line for each."""
    if len(arguments) == 1:
        return str(*arguments.values())
    return "\n".join(f"{name}: {value}" for name, value in arguments.items())


def _is_rejection(part: object, output_tools: set[str]) -> bool:
    """Return whether a part of a request rejects the previous answer, as opposed to a tool call."""
    if isinstance(part, ToolReturnPart):
        return part.outcome == "retried" and part.tool_name in output_tools
    return isinstance(part, RetryFeedbackPart)


class RunCapability(AbstractCapability[Any]):
    """Reports the model requests of a run to observers, counts their tokens, and asks for the run's deferred calls."""

    def __init__(self, hooks: PydanticAIHooks) -> None:
        self.turn = hooks.turn
        self._hooks = hooks
        self._request: ObservedRequest | None = None

    @override
    def get_ordering(self) -> CapabilityOrdering:
        """Return a position after all other capabilities, to see the requests as they are sent."""
        return CapabilityOrdering(position="innermost")

    @override
    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Report the start of a request."""
        parameters = request_context.model_request_parameters
        # Every part of a `ModelRequest` is sent as a message of its own.
        messages = sum(
            len(message.parts) if isinstance(message, ModelRequest) else 1 for message in request_context.messages
        )
        self._request = self.turn.observe_request(
            request_context.model.model_name,
            messages + bool(parameters.instruction_parts),
            len(parameters.function_tools) + len(parameters.output_tools),
        )
        return request_context

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count the request's tokens and report its answer."""
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
        """Report the failure of a request."""
        if self._request is not None:
            self._request.end(error)
        raise error

    @override
    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Ask for all approvals and answers at once. Calls that are to be run elsewhere fail."""
        find = ctx.tool_manager.get_tool_def if ctx.tool_manager else lambda _: None
        kinds = {call.tool_call_id: requests.kind(call.tool_call_id) for call in requests.calls}
        approvals, results = await asyncio.gather(
            self._hooks.approve(requests.approvals),
            asyncio.gather(
                *(self._hooks.resolve(call, find(call.tool_name), kinds[call.tool_call_id]) for call in requests.calls)
            ),
        )
        return requests.build_results(
            approvals=_by_id(requests.approvals, approvals), calls=_by_id(requests.calls, results)
        )


class ClientCapability(RunCapability):
    """Adds the client's system messages to the requests."""

    def __init__(self, hooks: PydanticAIHooks, instructions: str) -> None:
        super().__init__(hooks)
        self._instructions = instructions

    @override
    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """Give the model the user's messages to the run; the agent's capabilities see them too."""
        if isinstance(node, ModelRequestNode) and (text := await self.turn.take_message()):
            ctx.enqueue(text)
        return node

    @override
    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Merge the system messages of the client and the agent into one: many chat templates refuse a second."""
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
        """Record the time of the first piece of an answer."""
        async for event in stream:
            if isinstance(event, PartStartEvent) and self._request is not None:
                self._request.receive()
            yield event


def _by_id(calls: Sequence[ToolCallPart], results: Sequence[Any]) -> dict[str, Any]:
    return {call.tool_call_id: result for call, result in zip(calls, results, strict=True)}


@cache
def hook_agents_in_tools() -> None:
    """Add hooks to agents that a tool runs, and report the events that a tool emits.

    Without a running turn nothing changes.
    """
    iterate = Agent.iter
    run_sync = AbstractAgent.run_sync
    emit = RunContext.emit

    @wraps(iterate)
    def iterate_hooked(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if (turn := turn_of_tool.get()) is not None:
            hooks = PydanticAIHooks(turn)
            kwargs["capabilities"] = [hooks, RunCapability(hooks), *(kwargs.get("capabilities") or ())]
        return iterate(agent, *args, **kwargs)

    @wraps(run_sync)
    def run_in_the_loop(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if (tool := current_tool.get()) is None or turn_of_tool.get() is None:
            return run_sync(agent, *args, **kwargs)
        tool.refuse_to_block(f"run_sync() of the agent '{agent.name}'", "use `await agent.run(…)` there")
        return tool.wait_for(agent.run(*args, **kwargs))

    @wraps(emit)
    async def report_and_emit(context: RunContext[Any], event: Any) -> Any:
        if turn_of_tool.get() is not None:
            # Reported here because the run's events come late: the call may have ended before them.
            report_progress(event)
        return await emit(context, event)

    Agent.iter = iterate_hooked  # type: ignore[method-assign, assignment] # in front of it
    AbstractAgent.run_sync = run_in_the_loop  # type: ignore[method-assign, assignment] # in front of it
    RunContext.emit = report_and_emit  # type: ignore[method-assign] # in front of it
