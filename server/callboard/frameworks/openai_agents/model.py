"""A model of the SDK whose answers are shown while they stream.

Runs do not use the SDK's own stream, because it cannot change a call's id before other code reads it, and reports
tools' ends only with their whole batch. All text and calls of a run pass through its models, so each model is wrapped.
"""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import httpx
import openai
from agents import Handoff, ItemHelpers, Model, ModelResponse, ModelSettings, Tool, TResponseInputItem, Usage
from agents.agent_output import AgentOutputSchemaBase
from agents.exceptions import AgentsException
from agents.items import TResponseStreamEvent
from agents.models.interface import ModelTracing
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseErrorEvent,
    ResponseFailedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputItem,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseRefusalDeltaEvent,
    ResponseTextDeltaEvent,
)

import callboard_formats
from callboard.calls import ToolCall
from callboard.errors import InvalidArguments, ModelError, ToolError, UnknownTool
from callboard.frameworks.openai_agents.hooks import AgentsHooks
from callboard.frameworks.openai_agents.messages import count_messages, read_hosted_call, to_response
from callboard.frameworks.turn import CallLimitIgnored, to_source
from callboard.observers import ObservedRequest
from callboard_formats.arguments import parse_arguments

MODEL_FAILURES = (AgentsException, openai.OpenAIError, httpx.HTTPError)
"""The exceptions of the SDK's models and its extensions."""


class HookedModel(Model):
    """A model that streams, whatever method the SDK calls, and reports its answers to the run's hooks.

    `may_answer`: the model may answer without calling a tool, even if its agent's settings require a call.
    """

    def __init__(self, model: Model, hooks: AgentsHooks, *, may_answer: bool) -> None:
        self._model = model
        self._may_answer = may_answer
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        # Optional methods that only some models have.
        return getattr(self._model, name)

    async def get_response(self, *request: Any, **more: Any) -> ModelResponse:
        """Stream an answer as `stream_response` does, and return it when it is complete."""
        async with aclosing(self.stream_response(*request, **more)) as events:
            async for event in events:
                if isinstance(event, ResponseCompletedEvent):
                    response = event.response
        return ModelResponse(response.output, _to_usage(response), response.id, getattr(response, "_request_id", None))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK's name, by which it is given
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **more: Any,
    ) -> AsyncGenerator[TResponseStreamEvent, None]:
        """Stream an answer, show it, and start its calls."""
        hooks = self._hooks
        answer = _StreamedAnswer(hooks, tools, handoffs)
        hooks.end_unreported_calls(input)
        if hooks.was_cut_off:
            # The SDK retries, so the partial answer is discarded.
            hooks.turn.rewind()
            hooks.was_cut_off = False
        if self._may_answer:
            model_settings = replace(model_settings, tool_choice=None)
        if hooks.turn.calls.is_over_limit:
            tools = []
            handoffs = []
            model_settings = replace(model_settings, tool_choice=None, parallel_tool_calls=None)
        if model_settings.include_usage is None:
            model_settings = replace(model_settings, include_usage=True)
        hooks.turn.note_tools(
            {name: getattr(tool, name, None) for name in ("name", "description", "params_json_schema")}
            for tool in tools
        )
        if (unfinished := hooks.turn.take_unfinished_answer()) is not None:
            response = to_response(unfinished)
            await answer.take(response)
            yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)
            return
        input = await hooks.add_messages(ItemHelpers.input_to_new_input_list(input))  # noqa: A001 - the SDK's name
        system = "\n\n".join(filter(None, (system_instructions, hooks.instructions))) or None
        stream = self._model.stream_response(
            system, input, model_settings, tools, output_schema, handoffs, tracing, **more
        )
        name = str(getattr(self._model, "model", type(self._model).__name__))
        offered = len(tools) + len(handoffs)
        try:
            with hooks.turn.observe_request(name, count_messages(input) + bool(system), offered) as observed:
                async with aclosing(cast(AsyncGenerator[TResponseStreamEvent, None], stream)) as events:
                    async for event in events:
                        # Read before the event is passed on, because a call must be stored before its tool can run.
                        await answer.read_event(event, observed)
                        yield event
                if not answer.is_whole:
                    raise ModelError("The stream of the model's answer broke off. Look at its endpoint's log.")
        except MODEL_FAILURES as error:
            hooks.failure = error
            raise
        finally:
            hooks.was_cut_off = answer.is_shown and not answer.is_whole

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the wrapped model's advice."""
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # Defined by the base class, so `__getattr__` does not forward it.
        await self._model._cleanup_on_run_end(owner)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class _StreamedAnswer:
    """One answer while it streams. Its calls get the store's ids.

    `is_shown`: part of it was shown to the user. `is_whole`: its stream has ended normally.
    """

    def __init__(self, hooks: AgentsHooks, tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]) -> None:
        self.is_shown = False
        self.is_whole = False
        self._hooks = hooks
        self._turn = hooks.turn
        self._is_last_request = hooks.turn.calls.is_over_limit
        self._tools = tools
        self._handoffs = {handoff.tool_name for handoff in handoffs}
        self._streaming_calls: dict[int, tuple[str, str]] = {}
        self._ids: defaultdict[str, deque[str]] = defaultdict(deque)
        self._item_ids: defaultdict[str, deque[str]] = defaultdict(deque)
        self._assigned: dict[int, ResponseFunctionToolCall] = {}
        self._items: list[ResponseOutputItem] = []

    async def read_event(self, event: TResponseStreamEvent, observed: ObservedRequest) -> None:
        """Handle one event of the stream. Raises `ModelError` for an event that reports a failure."""
        if not isinstance(event, ResponseCreatedEvent):
            # This event comes before the model has started.
            observed.receive()
        match event:
            # Text of an agent inside a tool is only for that tool.
            case ResponseTextDeltaEvent() | ResponseRefusalDeltaEvent() if self._hooks.outer_call_id is None:
                self.is_shown = True
                self._turn.add_text(event.delta)
            case ResponseReasoningTextDeltaEvent() | ResponseReasoningSummaryTextDeltaEvent() if (
                self._hooks.outer_call_id is None
            ):
                self.is_shown = True
                self._turn.add_reasoning(event.delta)
            case ResponseFunctionCallArgumentsDeltaEvent() if event.output_index in self._streaming_calls:
                call_id, name = self._streaming_calls[event.output_index]
                self._turn.show_arguments(call_id, name, event.delta)
            case ResponseOutputItemAddedEvent():
                self._show_start(event.item, event.output_index)
            case ResponseOutputItemDoneEvent():
                await self._handle_item(event.item)
            case ResponseCompletedEvent():
                if event.response.usage is not None:
                    usage = _to_usage(event.response)
                    observed.usage = self._turn.add_usage(
                        usage.input_tokens,
                        usage.output_tokens,
                        cached_tokens=usage.input_tokens_details.cached_tokens,
                        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
                    )
                observed.end()
                await self.take(event.response)
            case _:
                _raise_on_failure_event(event)

    def _show_start(self, item: ResponseOutputItem, index: int) -> None:
        """Show the start of an item if it is a call."""
        if isinstance(item, ResponseFunctionToolCall):
            if self._is_last_request:
                raise CallLimitIgnored
            call_id = self._claim(item.call_id)
            if item.name not in self._handoffs:
                self._streaming_calls[index] = call_id, item.name
        elif (hosted := read_hosted_call(item)) is not None:
            self._turn.show_arguments(hosted[0].id, hosted[0].name, "")

    async def _handle_item(self, item: ResponseOutputItem) -> None:
        """Handle a complete item of the answer."""
        self._items.append(item)
        if isinstance(item, ResponseFunctionToolCall):
            self._assign_id(item, self._item_ids)
        elif (hosted := read_hosted_call(item)) is not None:
            call, ended = hosted
            self._turn.calls.count(call.id, call.name)
            await self._turn.calls.start(replace(call, parent_call_id=self._hooks.parent_call_id))
            if isinstance(ended, ToolError):
                self._turn.calls.fail(call.id, ended)
            else:
                self._turn.calls.complete(call.id, ended)

    async def take(self, response: Response) -> None:
        """Start the calls of the complete answer, and show its sources."""
        output = response.output or self._items
        response.output = output
        calls = [item for item in output if isinstance(item, ResponseFunctionToolCall)]
        self._hooks.has_calls = bool(calls)
        for item in calls:
            await self._start_call(item)
        for message in output:
            if isinstance(message, ResponseOutputMessage):
                for annotation in (found for part in message.content for found in getattr(part, "annotations", ())):
                    if annotation.type == "url_citation":
                        self._turn.add_source(to_source(annotation.url, annotation.title))
        self.is_whole = True

    async def _start_call(self, item: ResponseFunctionToolCall) -> None:
        """Start a call, or refuse a call that cannot be run."""
        if self._is_last_request:
            raise CallLimitIgnored
        self._assign_id(item, self._ids)
        if item.name in self._handoffs:
            self._hooks.handoff_id = item.call_id
            return
        call = ToolCall(item.call_id, item.name, item.arguments)
        names = [tool.name for tool in self._tools]
        if call.name not in names:
            there_are = ", ".join(names) or "none"
            self._hooks.refuse(call, UnknownTool(f"There is no tool '{call.name}'. The tools are: {there_are}."))
            return
        try:
            parse_arguments(item.arguments)
        except callboard_formats.InvalidArguments as error:
            self._hooks.refuse(call, InvalidArguments(str(error)))
            # Chat templates parse the arguments of earlier calls, and some endpoints fail if they are not JSON.
            item.arguments = "{}"
            return
        await self._hooks.start(replace(call, arguments=call.arguments or "{}"))

    def _assign_id(self, call: ResponseFunctionToolCall, ids: "defaultdict[str, deque[str]]") -> None:
        """Replace the call's id by the id with which it was shown, or by a new one.

        Each call arrives twice, as an item and in the complete answer, as the same object or as two.
        """
        if id(call) in self._assigned:
            return
        self._assigned[id(call)] = call
        given = call.call_id
        if not ids[given]:
            self._claim(given)
        call.call_id = ids[given].popleft()

    def _claim(self, given: str) -> str:
        call_id = self._turn.claim_call_id(given)
        self._item_ids[given].append(call_id)
        self._ids[given].append(call_id)
        return call_id


def _raise_on_failure_event(event: TResponseStreamEvent) -> None:
    match event:
        case ResponseErrorEvent():
            raise ModelError(f"The model failed: {event.message}. Look at its endpoint's log.")
        case ResponseFailedEvent() | ResponseIncompleteEvent():
            error = event.response.error
            details = event.response.incomplete_details
            reason = (error and error.message) or (details and details.reason) or "it gave no reason"
            raise ModelError(
                f"The model did not finish its answer: {reason}. Look at its settings and its endpoint's log."
            )
        case _:
            pass


def _to_usage(response: Response) -> Usage:
    if response.usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=response.usage.input_tokens or 0,
        output_tokens=response.usage.output_tokens or 0,
        total_tokens=response.usage.total_tokens or 0,
        input_tokens_details=response.usage.input_tokens_details,
        output_tokens_details=response.usage.output_tokens_details,
    )
