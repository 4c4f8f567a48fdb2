"""A model of the SDK whose answers are told as they come.

A run is played without the SDK's own stream: that one cannot change a call's id before
anything else knows it, and its tools' ends come with their batch's. All that a run says passes
through its models, so each is given to its agent with this one in front.
"""

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
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
    ResponseCompletedEvent,
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

from callboard.errors import InvalidArguments, ModelError, UnknownTool
from callboard.formats import parse_arguments
from callboard.frameworks.openai_agents.hosted import hosted_call
from callboard.frameworks.openai_agents.watch import TurnOver, Watch
from callboard_protocol import Source

MODEL_FAILURES = (AgentsException, openai.OpenAIError, httpx.HTTPError)
"""What models of the SDK raise, those of its extensions too."""


class WatchedModel(Model):
    """A model as the run's watch hears it; it is asked for a stream, whatever the SDK wants."""

    def __init__(self, model: Model, watch: Watch) -> None:
        self._model = model
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        # What the SDK asks of some models only.
        return getattr(self._model, name)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK's name, by which it is given
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **more: Any,
    ) -> ModelResponse:
        """Asks for an answer, tells it as it comes, and begins its calls."""
        watch = self._watch
        watch.settle(input)
        if watch.turn.over_limit:
            tools, handoffs = [], []
            model_settings = replace(model_settings, tool_choice=None, parallel_tool_calls=None)
        if model_settings.include_usage is None:
            model_settings = replace(model_settings, include_usage=True)
        system = "\n\n".join(filter(None, (system_instructions, watch.instructions))) or None
        answer = _Answer(watch, tools, handoffs)
        stream = self._model.stream_response(
            system, input, model_settings, tools, output_schema, handoffs, tracing, **more
        )
        try:
            async with aclosing(cast(AsyncGenerator[TResponseStreamEvent, None], stream)) as events:
                async for event in events:
                    await answer.hear(event)
        except MODEL_FAILURES as error:
            watch.failure = error
            raise
        return await answer.end()

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """The model's own stream, unheard."""
        return self._model.stream_response(*args, **kwargs)

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """The model's own."""
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # Of the base class, and so not found by `__getattr__`.
        await self._model._cleanup_on_run_end(owner)

    async def close(self) -> None:
        """Closes the model."""
        await self._model.close()


class _Answer:
    """One answer, told as it comes; its calls get the ids that the store has."""

    def __init__(self, watch: Watch, tools: Sequence[Tool], handoffs: Sequence[Handoff[Any, Any]]) -> None:
        self._watch = watch
        self._turn = watch.turn
        self._is_last = watch.turn.over_limit
        watch.spoke = False
        self._tools = [tool.name for tool in tools]
        self._handoffs = {handoff.tool_name for handoff in handoffs}
        self._written: dict[int, tuple[str, str]] = {}
        self._claimed: defaultdict[str, deque[str]] = defaultdict(deque)
        self._items: list[ResponseOutputItem] = []
        self._response: Response | None = None

    async def hear(self, event: TResponseStreamEvent) -> None:
        """Tells one event of the stream. Raises `ModelError` for those that end it badly."""
        match event:
            case ResponseTextDeltaEvent() | ResponseRefusalDeltaEvent():
                self._watch.spoke = True
                self._turn.say(event.delta)
            case ResponseReasoningTextDeltaEvent() | ResponseReasoningSummaryTextDeltaEvent():
                self._turn.think(event.delta)
            case ResponseOutputItemAddedEvent(item=ResponseFunctionToolCall() as call):
                self._announce(call, event.output_index)
            case ResponseFunctionCallArgumentsDeltaEvent() if event.output_index in self._written:
                call_id, name = self._written[event.output_index]
                self._turn.announce(call_id, name, event.delta)
            case ResponseOutputItemAddedEvent() if (hosted := hosted_call(event.item)) is not None:
                self._turn.announce(hosted.call_id, hosted.name, "")
            case ResponseOutputItemDoneEvent():
                self._items.append(event.item)
                if (hosted := hosted_call(event.item)) is not None:
                    await hosted.tell(self._turn)
            case ResponseCompletedEvent():
                self._response = event.response
            case _:
                _raise_if_failed(event)

    async def end(self) -> ModelResponse:
        """The whole answer, its calls begun."""
        response = self._response
        if response is None:
            raise ModelError("The model's answer has no end. Look at its endpoint's log.")
        output = response.output or self._items
        calls = [item for item in output if isinstance(item, ResponseFunctionToolCall)]
        self._watch.called = bool(calls)
        for call in calls:
            await self._begin(call)
        for item in output:
            if isinstance(item, ResponseOutputMessage):
                self._cite(item)
        usage = _usage(response)
        self._turn.spend(
            usage.input_tokens,
            usage.output_tokens,
            cached_tokens=usage.input_tokens_details.cached_tokens,
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        )
        return ModelResponse(output, usage, response.id, getattr(response, "_request_id", None))

    def _announce(self, call: ResponseFunctionToolCall, index: int) -> None:
        if self._is_last:
            raise TurnOver
        call_id = self._turn.claim(call.call_id)
        self._claimed[call.call_id].append(call_id)
        if call.name not in self._handoffs:
            self._written[index] = call_id, call.name

    async def _begin(self, call: ResponseFunctionToolCall) -> None:
        if self._is_last:
            raise TurnOver
        claimed = self._claimed[call.call_id]
        call.call_id = claimed.popleft() if claimed else self._turn.claim(call.call_id)
        if call.name in self._handoffs:
            return
        if call.name not in self._tools:
            there_are = ", ".join(self._tools) or "none"
            unknown = UnknownTool(f"There is no tool '{call.name}'. The tools are: {there_are}.")
            self._watch.refuse(call.call_id, call.name, call.arguments, unknown)
            return
        try:
            parse_arguments(call.arguments)
        except InvalidArguments as error:
            self._watch.refuse(call.call_id, call.name, call.arguments, error)
            # Chat templates parse the arguments of earlier calls, and some endpoints fail where they cannot.
            call.arguments = "{}"
        else:
            await self._watch.start(call.call_id, call.name, call.arguments or "{}")

    def _cite(self, message: ResponseOutputMessage) -> None:
        annotations = [one for part in message.content for one in getattr(part, "annotations", ())]
        cited = {one.url: one.title for one in annotations if one.type == "url_citation"}
        for url, title in cited.items():
            name = title or url
            self._turn.cite(Source(source={"name": name, "url": url}, document=(name,), metadata=({"source": url},)))


def _raise_if_failed(event: TResponseStreamEvent) -> None:
    match event:
        case ResponseErrorEvent():
            raise ModelError(f"The model failed: {event.message}. Look at its endpoint's log.")
        case ResponseFailedEvent() | ResponseIncompleteEvent():
            error, details = event.response.error, event.response.incomplete_details
            why = (error and error.message) or (details and details.reason) or "it did not say why"
            raise ModelError(
                f"The model did not finish its answer: {why}. Look at its settings and its endpoint's log."
            )
        case _:
            pass


def _usage(response: Response) -> Usage:
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
