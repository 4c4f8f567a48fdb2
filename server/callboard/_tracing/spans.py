"""The spans of runs: `invoke_agent`, and in it `chat` for each request to a model and `execute_tool` for each call.

An observer makes them, so they exist for every kind of agent. They have no prompts, answers, arguments or results.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from callboard._tracing import conventions as names
from callboard._version import __version__
from callboard.errors import UnknownTool
from callboard.observers import (
    STOPPED,
    ModelAnswered,
    ModelAsked,
    Observation,
    ObservedRun,
    RunLeft,
    RunPrepared,
    RunTakenOver,
)
from callboard_protocol import Done, Error, RunStart, ToolCallComplete, ToolCallError, ToolCallStart
from callboard_protocol.endings import find_ending


class Tracing:
    """Makes the spans of an application's runs, in the trace of each request if it has one."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(names.SCOPE, __version__, schema_url=names.SCHEMA_URL)
        self._runs: dict[str, _RunSpans] = {}

    def observe(self, run: ObservedRun, observation: Observation) -> None:
        """Begin or end the span of the observation; the observer of the runs."""
        if isinstance(observation, RunStart | RunTakenOver):
            spans = _RunSpans(self._tracer, run)
            if spans.run.is_recording():
                self._runs[run.run_id] = spans
        # Looked up by class, because most events are text and must cost little.
        elif (handle := _HANDLERS.get(type(observation))) and (found := self._runs.get(run.run_id)):
            handle(found, observation)
            if not found.run.is_recording():
                del self._runs[run.run_id]


class _RunSpans:
    """The spans of one run."""

    def __init__(self, tracer: trace.Tracer, run: ObservedRun) -> None:
        self._tracer = tracer
        optional = {names.CONVERSATION_ID: run.chat_id, names.USER_ID: run.user_id}
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.PROVIDER_NAME: names.OPENAI,
            names.AGENT_ID: run.agent_id,
            names.AGENT_NAME: run.agent_id,
            names.RUN_ID: run.run_id,
            **{name: value for name, value in optional.items() if value is not None},
        }
        self.run = tracer.start_span(f"{names.INVOKE_AGENT} {run.agent_id}", attributes=attributes)
        self._context = trace.set_span_in_context(self.run)
        self._requests: dict[int, Span] = {}
        self._calls: dict[str, Span] = {}

    def on_prepared(self, _: RunPrepared) -> None:
        """Make the run's span the current one of the run's task, which makes this observation, and of its tools."""
        context.attach(self._context)

    def on_asked(self, asked: ModelAsked) -> None:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.CHAT,
            names.PROVIDER_NAME: names.OPENAI,
            names.REQUEST_MODEL: asked.model,
        }
        name = f"{names.CHAT} {asked.model}".strip()
        self._requests[asked.number] = self._tracer.start_span(name, self._context, SpanKind.CLIENT, attributes)

    def on_answered(self, answered: ModelAnswered) -> None:
        span = self._requests.pop(answered.number, None)
        if span is None:
            return
        if answered.first_seconds is not None:
            span.set_attribute(names.TIME_TO_FIRST_CHUNK, answered.first_seconds)
        if answered.finish_reason is not None:
            span.set_attribute(names.FINISH_REASONS, [answered.finish_reason])
        if usage := answered.usage:
            span.set_attributes({names.INPUT_TOKENS: usage.input_tokens, names.OUTPUT_TOKENS: usage.output_tokens})
            if usage.cached_tokens:
                span.set_attribute(names.CACHED_TOKENS, usage.cached_tokens)
            if usage.reasoning_tokens:
                span.set_attribute(names.REASONING_TOKENS, usage.reasoning_tokens)
        if answered.error is not None:
            # To stop a run is no failure.
            _set_error(span, answered.error, is_failure=answered.error not in STOPPED)
        span.end()

    def on_call_start(self, call: ToolCallStart) -> None:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.TOOL_NAME: call.tool_name,
            names.TOOL_CALL_ID: call.tool_call_id,
            names.TOOL_TYPE: names.FUNCTION,
        }
        name = f"{names.EXECUTE_TOOL} {call.tool_name}"
        span = self._tracer.start_span(name, self._context, SpanKind.INTERNAL, attributes)
        self._calls[call.tool_call_id] = span

    def on_call_complete(self, call: ToolCallComplete) -> None:
        if span := self._calls.pop(call.tool_call_id, None):
            span.end()

    def on_call_error(self, call: ToolCallError) -> None:
        if span := self._calls.pop(call.tool_call_id, None):
            _set_error(span, call.code, is_failure=find_ending(call.code).is_failure)
            if call.code == UnknownTool.code:
                span.update_name(names.EXECUTE_TOOL)
                span.set_attribute(names.TOOL_NAME, names.UNKNOWN_TOOL)
            span.end()

    def on_done(self, done: Done) -> None:
        self.run.set_attribute(names.FINISH_REASONS, [done.finish_reason])
        self.end()

    def on_error(self, error: Error) -> None:
        _set_error(self.run, error.code, is_failure=True)
        self.end()

    def end(self, _: object = None) -> None:
        """End the spans that are still open, and then the run's."""
        for span in (*self._calls.values(), *self._requests.values(), self.run):
            span.end()


_HANDLERS: Final[Mapping[type, Callable[[_RunSpans, Any], None]]] = {
    RunPrepared: _RunSpans.on_prepared,
    ModelAsked: _RunSpans.on_asked,
    ModelAnswered: _RunSpans.on_answered,
    ToolCallStart: _RunSpans.on_call_start,
    ToolCallComplete: _RunSpans.on_call_complete,
    ToolCallError: _RunSpans.on_call_error,
    Done: _RunSpans.on_done,
    Error: _RunSpans.on_error,
    RunLeft: _RunSpans.end,
}


def _set_error(span: Span, code: str, *, is_failure: bool) -> None:
    """Note how a span ended. The error's message is left out because it may quote the conversation."""
    span.set_attribute(names.ERROR_TYPE, code)
    if is_failure:
        span.set_status(Status(StatusCode.ERROR))
