"""A model of the SDK whose answers are told as they come.

A run is played without the SDK's own stream: that one cannot change a call's id before
anything else knows it, and its tools' ends come with their batch's. All that a run says passes
through its models, so each is given to its agent with this one in front.
"""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import httpx
import openai
from agents import Handoff, Model, ModelResponse, ModelSettings, Tool, TResponseInputItem, Usage
from agents.agent_output import AgentOutputSchemaBase
from agents.exceptions import AgentsException
from agents.items import TResponseStreamEvent
from agents.models.interface import ModelTracing
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from openai.types.responses import (
    Response,
    ResponseApplyPatchToolCall,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseCustomToolCall,
    ResponseErrorEvent,
    ResponseFailedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionShellToolCall,
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
from openai.types.responses.response_output_item import LocalShellCall

from callboard._formats import parse_arguments
from callboard.calls import ToolCall
from callboard.errors import InvalidArguments, ModelError, ToolError, UnknownTool
from callboard.frameworks.openai_agents.hooks import Hooks, TurnOver
from callboard.frameworks.openai_agents.hosted import read_hosted_call, read_hosted_end
from callboard.frameworks.openai_agents.local_tools import LocalTools
from callboard.frameworks.openai_agents.messages import count_messages
from callboard.frameworks.turn import source_of
from callboard.observers import ObservedRequest

AnyCall = (
    ResponseApplyPatchToolCall
    | ResponseCustomToolCall
    | ResponseFunctionShellToolCall
    | ResponseFunctionToolCall
    | LocalShellCall
)
"""The items of an answer that may be calls which the SDK runs here."""

MODEL_FAILURES = (AgentsException, openai.OpenAIError, httpx.HTTPError)
"""The errors that models of the SDK raise, those of its extensions too."""

CALLED_ON = "This turn's tool calls are used up, and the model asked for more without being offered any."


class HookedModel(Model):
    """A model as the run's hooks are told of it; it is asked for a stream, whatever the SDK wants.

    `is_free`: it need not call a tool, whatever its agent's settings say.
    """

    def __init__(self, model: Model, hooks: Hooks, agent_name: str, *, is_free: bool) -> None:
        self._model = model
        self._is_free = is_free
        self._hooks = hooks
        self._agent_name = agent_name

    def __getattr__(self, name: str) -> Any:
        # What the SDK asks of some models only.
        return getattr(self._model, name)

    async def get_response(self, *request: Any, **more: Any) -> ModelResponse:
        """Ask for an answer as `stream_response` does, and return it when it is whole."""
        async with aclosing(self.stream_response(*request, **more)) as events:
            async for event in events:
                if isinstance(event, ResponseCompletedEvent):
                    response = event.response
        return ModelResponse(
            response.output, _count_usage(response), response.id, getattr(response, "_request_id", None)
        )

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
        """Ask for an answer, tell it as it comes, and begin its calls."""
        hooks = self._hooks
        answer = _Answer(hooks, self._agent_name, tools, handoffs)
        hooks.settle(input)
        if hooks.broke_off:
            # The SDK asks again, and the half answer is none.
            hooks.turn.rewind()
            hooks.broke_off = False
        if self._is_free:
            model_settings = replace(model_settings, tool_choice=None)
        if hooks.turn.calls.is_over_limit:
            tools = []
            handoffs = []
            model_settings = replace(model_settings, tool_choice=None, parallel_tool_calls=None)
        if model_settings.include_usage is None:
            model_settings = replace(model_settings, include_usage=True)
        system = "\n\n".join(filter(None, (system_instructions, hooks.instructions))) or None
        stream = self._model.stream_response(
            system, input, model_settings, tools, output_schema, handoffs, tracing, **more
        )
        name = str(getattr(self._model, "model", type(self._model).__name__))
        offered = len(tools) + len(handoffs)
        try:
            with hooks.turn.ask_model(name, count_messages(input) + bool(system), offered) as observed:
                async with aclosing(cast(AsyncGenerator[TResponseStreamEvent, None], stream)) as events:
                    async for event in events:
                        # Before it is passed on: a call must be written down before its tool can run.
                        await answer.read_event(event, observed)
                        yield event
                if not answer.is_whole:
                    raise ModelError("The model's answer has no end. Look at its endpoint's log.")
        except MODEL_FAILURES as error:
            hooks.failure = error
            raise
        finally:
            hooks.broke_off = answer.told and not answer.is_whole

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the model's own."""
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # Of the base class, and so not found by `__getattr__`.
        await self._model._cleanup_on_run_end(owner)

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()


class _Answer:
    """One answer, told as it comes; its calls get the ids that the store has.

    `told`: the user was shown something of it; `is_whole`: its stream has come to its end.
    """

    def __init__(
        self, hooks: Hooks, agent_name: str, tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]
    ) -> None:
        hooks.spoke = False
        self.told = False
        self.is_whole = False
        self._hooks = hooks
        self._turn = hooks.turn
        self._agent_name = agent_name
        self._is_last = hooks.turn.calls.is_over_limit
        self._tools = [tool.name for tool in tools]
        self._local = LocalTools(tools)
        self._handoffs = {handoff.tool_name for handoff in handoffs}
        self._written: dict[int, tuple[str, str]] = {}
        self._claimed: defaultdict[str, deque[str]] = defaultdict(deque)
        self._claimed_of_items: defaultdict[str, deque[str]] = defaultdict(deque)
        self._named: dict[int, AnyCall] = {}
        self._items: list[ResponseOutputItem] = []

    async def read_event(self, event: TResponseStreamEvent, observed: ObservedRequest) -> None:
        """Tell one event of the stream. Raises `ModelError` for those that end it badly."""
        if not isinstance(event, ResponseCreatedEvent):
            # That one comes before the model has begun.
            observed.receive()
        match event:
            # What an agent inside a tool says and thinks is told to the one that called it, and to nobody else.
            case ResponseTextDeltaEvent() | ResponseRefusalDeltaEvent() if self._hooks.inside is None:
                self._hooks.spoke = True
                self.told = True
                self._turn.say(event.delta)
            case ResponseReasoningTextDeltaEvent() | ResponseReasoningSummaryTextDeltaEvent() if (
                self._hooks.inside is None
            ):
                self.told = True
                self._turn.think(event.delta)
            case ResponseFunctionCallArgumentsDeltaEvent() if event.output_index in self._written:
                call_id, name = self._written[event.output_index]
                self._turn.show_arguments(call_id, name, event.delta)
            case ResponseOutputItemAddedEvent():
                self._announce(event.item, event.output_index)
            case ResponseOutputItemDoneEvent():
                await self._read_item(event.item)
            case ResponseCompletedEvent():
                if event.response.usage is not None:
                    usage = _count_usage(event.response)
                    observed.usage = self._turn.add_usage(
                        usage.input_tokens,
                        usage.output_tokens,
                        cached_tokens=usage.input_tokens_details.cached_tokens,
                        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
                    )
                observed.end()
                await self._end(event.response)
            case _:
                _raise_if_failed(event)

    def _read_call(self, item: ResponseOutputItem) -> ToolCall | None:
        """Return the call that the SDK runs here which a part of the answer is."""
        if isinstance(item, ResponseFunctionToolCall):
            return ToolCall(item.call_id, item.name, item.arguments)
        return self._local.read(item)

    def _announce(self, item: ResponseOutputItem, index: int) -> None:
        """Show the beginning of a part of the answer, where it is a call."""
        if (call := self._read_call(item)) is not None:
            if self._is_last:
                raise TurnOver(CALLED_ON)
            call_id = self._claim(call.id)
            if not isinstance(item, ResponseFunctionToolCall):
                self._turn.show_arguments(call_id, call.name, "")
            elif call.name not in self._handoffs:
                self._written[index] = call_id, call.name
        elif (hosted := read_hosted_call(item, self._hooks.remote_calls)) is not None:
            self._turn.show_arguments(hosted[0].id, hosted[0].name, "")

    async def _read_item(self, item: ResponseOutputItem) -> None:
        """Tell a part of the answer that is whole."""
        self._items.append(item)
        if isinstance(item, AnyCall) and self._read_call(item) is not None:
            self._name(item, self._claimed_of_items)
        elif (hosted := read_hosted_call(item, self._hooks.remote_calls)) is not None:
            call, ended = hosted
            self._turn.calls.count(call.id, call.name)
            await self._turn.calls.start(replace(call, parent_call_id=self._hooks.parent_call_id))
            if isinstance(ended, ToolError):
                self._turn.calls.fail(call.id, ended)
            elif ended is not None:
                self._turn.calls.complete(call.id, ended)
        elif (end := read_hosted_end(item)) is not None:
            self._turn.calls.complete(*end)

    async def _end(self, response: Response) -> None:
        output = response.output or self._items
        response.output = output
        calls = [item for item in output if isinstance(item, AnyCall) and self._read_call(item) is not None]
        self._hooks.called = bool(calls)
        for item in calls:
            await self._begin(item)
        for message in output:
            if isinstance(message, ResponseOutputMessage):
                annotations = [one for part in message.content for one in getattr(part, "annotations", ())]
                cited = {one.url: one.title for one in annotations if one.type == "url_citation"}
                for url, title in cited.items():
                    self._turn.cite(source_of(url, title))
        self.is_whole = True

    async def _begin(self, item: AnyCall) -> None:
        """Begin a call, or refuse one that cannot be run."""
        if self._is_last:
            raise TurnOver(CALLED_ON)
        self._name(item, self._claimed)
        call = self._read_call(item)
        assert call is not None, "it was read before"
        if isinstance(item, ResponseFunctionToolCall) and call.name in self._handoffs:
            self._hooks.handoff_id = call.id
            return
        if isinstance(item, ResponseFunctionToolCall | ResponseCustomToolCall) and call.name not in self._tools:
            there_are = ", ".join(self._tools) or "none"
            self._hooks.refuse(call, UnknownTool(f"There is no tool '{call.name}'. The tools are: {there_are}."))
            return
        if isinstance(item, ResponseFunctionToolCall):
            try:
                parse_arguments(item.arguments)
            except InvalidArguments as error:
                self._hooks.refuse(call, error)
                # Chat templates parse the arguments of earlier calls, and some endpoints fail where they cannot.
                item.arguments = "{}"
                return
        await self._hooks.start(replace(call, arguments=call.arguments or "{}"))

    def _name(self, call: AnyCall, claimed: "defaultdict[str, deque[str]]") -> None:
        """Give the call the id that it was announced with, or one of its own.

        A call comes twice, as an item and in the whole answer, as one object or as two.
        """
        if id(call) in self._named:
            return
        self._named[id(call)] = call
        given = call.call_id
        if not claimed[given]:
            self._claim(given)
        call.call_id = claimed[given].popleft()

    def _claim(self, given: str) -> str:
        call_id = self._turn.claim(given)
        self._claimed_of_items[given].append(call_id)
        self._claimed[given].append(call_id)
        return call_id


def _raise_if_failed(event: TResponseStreamEvent) -> None:
    match event:
        case ResponseErrorEvent():
            raise ModelError(f"The model failed: {event.message}. Look at its endpoint's log.")
        case ResponseFailedEvent() | ResponseIncompleteEvent():
            error = event.response.error
            details = event.response.incomplete_details
            why = (error and error.message) or (details and details.reason) or "it did not say why"
            raise ModelError(
                f"The model did not finish its answer: {why}. Look at its settings and its endpoint's log."
            )
        case _:
            pass


def _count_usage(response: Response) -> Usage:
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
