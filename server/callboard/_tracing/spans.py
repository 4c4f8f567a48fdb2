"""The spans of a run: `invoke_agent`, and in it `chat` for each request to a model and `execute_tool` for each call.

An observer of the run makes them, so they exist for every kind of agent. If spans are not exported, or the trace is not
sampled, only the span of the run is made.
"""

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from callboard import __version__
from callboard._tracing import conventions as names
from callboard._tracing.contents import as_json, input_messages, output_messages, system_parts, text_message
from callboard.errors import UnknownTool
from callboard.models import TokenUsage
from callboard.observers import (
    STOPPED,
    ModelAnswered,
    ModelAsked,
    Observation,
    ObservedRun,
    Observer,
    RunLeft,
    RunTakenOver,
)
from callboard.redaction import Redaction
from callboard.trace_context import RunTrace, current_span_id, is_within, link_to, with_run
from callboard_protocol import (
    Done,
    Error,
    Message,
    Rewind,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    Usage,
    find_ending,
)


class Tracing:
    """Begins the spans of an application's runs; with `has_contents` they have conversations, without secrets."""

    def __init__(self, *, has_contents: bool = False) -> None:
        self.has_contents = has_contents
        self._tracer = trace.get_tracer(names.SCOPE, __version__, schema_url=names.SCHEMA_URL)

    def begin(self, run: ObservedRun, agent_name: str, former: str = "") -> "RunSpans":
        """Begin the span of a run, in the trace of the current task if there is one.

        After a takeover, `former` is the `traceparent` of the run at its previous server.
        """
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.PROVIDER_NAME: names.OPENAI,
            names.AGENT_ID: run.agent_id,
            names.AGENT_NAME: agent_name,
            names.RUN_ID: run.run_id,
        }
        optional = {names.CONVERSATION_ID: run.chat_id, names.USER_ID: run.user_id, names.TASK: run.task}
        attributes |= {name: value for name, value in optional.items() if value is not None}
        name = f"{names.INVOKE_AGENT} {agent_name}"
        span = self._tracer.start_span(name, attributes=attributes, links=link_to(former))
        return RunSpans(self._tracer, span, has_contents=self.has_contents)


class RunSpans:
    """The spans of one run. The agent runs in `context`, an OpenTelemetry context.

    If the run does not start, the span needs no end: a span without an end is not exported.
    """

    def __init__(self, tracer: trace.Tracer, run: Span, *, has_contents: bool) -> None:
        self._tracer = tracer
        self._run = run
        self._has_contents = has_contents
        self._redaction: Redaction | None = None
        self._requests: dict[int, tuple[Span, int]] = {}
        """The spans of open requests by number, each with the id of its parent span."""
        self._calls: dict[str, Span] = {}
        self._texts: list[str] = []
        self._texts_until_call = 0
        """The number of texts before the last start or end of a call, which a rewind does not remove."""
        self._trace = RunTrace()
        self._within = trace.set_span_in_context(run)
        self.context: Context = with_run(self._within, self._trace)
        self._handlers: dict[type, Callable[[Any], None]] = {
            RunTakenOver: self._on_taken_over,
            ModelAsked: self._on_asked,
            ModelAnswered: self._on_answered,
            ToolCallStart: self._on_call_start,
            ToolStatus: self._on_call_status,
            ToolCallComplete: self._on_call_complete,
            ToolCallError: self._on_call_error,
            Usage: self._on_usage,
            Done: self._on_done,
            Error: self._on_error,
            RunLeft: self._on_left,
        }

    def observers(self, redaction: Redaction, question: str = "") -> Sequence[Observer]:
        """Return the observer that makes the spans inside the run; none if the run's span is not recorded.

        `redaction` removes secrets from contents; `question` is the user's message.
        """
        if not self._run.is_recording():
            return ()
        if self._has_contents:
            self._redaction = redaction
            self._handlers |= {Message: self._on_message, Rewind: self._on_rewind}
            self._put_content(self._run, names.INPUT_MESSAGES, text_message("user", question) if question else None)
            self._put_content(self._run, names.INPUT_VALUE, question)
        return (self._observe,)

    def _observe(self, _: ObservedRun, observation: Observation) -> None:
        # Looked up by class, because most events are text and must cost little.
        if handle := self._handlers.get(type(observation)):
            handle(observation)

    def _on_message(self, message: Message) -> None:
        self._texts.append(message.content)

    def _on_rewind(self, _: Rewind) -> None:
        del self._texts[self._texts_until_call :]

    def _on_taken_over(self, taken: RunTakenOver) -> None:
        self._run.set_attribute(names.LOSSES, taken.losses)

    def _on_usage(self, usage: Usage) -> None:
        self._run.set_attributes(_usage(TokenUsage(**usage.model_dump(exclude={"type"})), names.SUM_OF_USAGE))

    def _on_done(self, done: Done) -> None:
        reason = done.finish_reason
        self._run.set_attribute(names.FINISH_REASONS, [reason])
        if self._texts:
            answer = "".join(self._texts)
            self._put_content(self._run, names.OUTPUT_MESSAGES, text_message("assistant", answer, finish_reason=reason))
            self._put_content(self._run, names.OUTPUT_VALUE, answer)
        self._end()

    def _on_error(self, error: Error) -> None:
        self._fail(self._run, error.code, error.message)
        self._end()

    def _on_left(self, _: RunLeft) -> None:
        self._run.set_attribute(names.LEFT, True)
        self._end()

    def _on_asked(self, asked: ModelAsked) -> None:
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.CHAT,
            names.PROVIDER_NAME: names.OPENAI,
            names.REQUEST_MODEL: asked.model,
            names.REQUEST_STREAM: True,
        }
        if request := asked.request:
            for option, name in names.REQUEST_OPTIONS.items():
                value = request.options.get(option)
                if isinstance(value, int | float):
                    attributes[name] = value
        name = f"{names.CHAT} {asked.model}".strip()
        # A request of an agent in a tool belongs to that call. A framework's request is reported outside of the run's
        # context, and belongs to the run.
        around = None if is_within(self._trace) else self._within
        span = self._tracer.start_span(name, around, SpanKind.CLIENT, attributes)
        if request and self._redaction:
            self._put_content(span, names.SYSTEM_INSTRUCTIONS, system_parts(request.messages))
            self._put_content(span, names.INPUT_MESSAGES, input_messages(request.messages))
        # A framework may have sent the request already, with the run's span as its parent.
        parent_id = current_span_id()
        self._trace.asking[parent_id] = trace.set_span_in_context(span, self.context)
        self._requests[asked.number] = (span, parent_id)

    def _on_answered(self, answered: ModelAnswered) -> None:
        span, parent_id = self._requests.pop(answered.number, (None, 0))
        self._trace.asking.pop(parent_id, None)
        if span is None:
            return
        attributes: dict[str, AttributeValue] = _usage(answered.usage, names.USAGE) if answered.usage else {}
        if answered.first_seconds is not None:
            attributes[names.TIME_TO_FIRST_CHUNK] = answered.first_seconds
        if answered.finish_reason is not None:
            attributes[names.FINISH_REASONS] = [answered.finish_reason]
        span.set_attributes(attributes)
        if answered.deltas:
            self._put_content(span, names.OUTPUT_MESSAGES, output_messages(answered.deltas))
        if answered.error in STOPPED:
            # The run was stopped, which is not a failure.
            span.set_attribute(names.ERROR_TYPE, answered.error)
        elif answered.error is not None:
            self._fail(span, answered.error)
        span.end()

    def _on_call_start(self, call: ToolCallStart) -> None:
        self._texts_until_call = len(self._texts)
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.TOOL_NAME: call.tool_name,
            names.TOOL_CALL_ID: call.tool_call_id,
            names.TOOL_TYPE: names.FUNCTION,
        }
        span = self._tracer.start_span(
            f"{names.EXECUTE_TOOL} {call.tool_name}", self._within, SpanKind.INTERNAL, attributes
        )
        self._put_content(span, names.TOOL_CALL_ARGUMENTS, call.tool_args)
        self._calls[call.tool_call_id] = span
        self._trace.calls[call.tool_call_id] = trace.set_span_in_context(span, self.context)

    def _on_call_status(self, step: ToolStatus) -> None:
        if span := self._calls.get(step.tool_call_id):
            # The user may have changed the arguments.
            self._put_content(span, names.TOOL_CALL_ARGUMENTS, step.data.arguments)

    def _on_call_complete(self, call: ToolCallComplete) -> None:
        if span := self._take_call(call.tool_call_id):
            self._put_content(span, names.TOOL_CALL_RESULT, call.result)
            span.end()

    def _on_call_error(self, call: ToolCallError) -> None:
        span = self._take_call(call.tool_call_id)
        if span is None:
            return
        if find_ending(call.code).is_failure:
            self._fail(span, call.code, call.error)
        else:
            span.set_attribute(names.ERROR_TYPE, call.code)
        if call.code == UnknownTool.code and not self._redaction:
            # No such tool exists, so the name is text of the model.
            span.update_name(names.EXECUTE_TOOL)
            span.set_attribute(names.TOOL_NAME, names.UNKNOWN_TOOL)
        span.end()

    def _take_call(self, call_id: str) -> Span | None:
        self._texts_until_call = len(self._texts)
        self._trace.calls.pop(call_id, None)
        return self._calls.pop(call_id, None)

    def _end(self) -> None:
        """End the spans that are still open, and then the run's."""
        if not self._run.is_recording():
            return  # `done` was observed before another server took the run over, so the span has ended.
        for span in (*self._calls.values(), *(span for span, _ in self._requests.values())):
            span.end()
        self._calls.clear()
        self._requests.clear()
        self._run.end()

    def _fail(self, span: Span, code: str, message: str = "") -> None:
        """Mark a span as failed; the message, which may quote the conversation, is content."""
        span.set_attribute(names.ERROR_TYPE, code)
        span.set_status(Status(StatusCode.ERROR, self._redaction(message) if self._redaction and message else None))

    def _put_content(self, span: Span, name: str, value: object) -> None:
        """Set an attribute to a text, or to another value as JSON, if traces have contents."""
        if self._redaction and value:
            span.set_attribute(name, self._redaction(value if isinstance(value, str) else as_json(value)))


def _usage(usage: TokenUsage, prefix: str) -> dict[str, AttributeValue]:
    found = {prefix + names.INPUT_TOKENS: usage.input_tokens, prefix + names.OUTPUT_TOKENS: usage.output_tokens}
    if usage.cached_tokens:
        found[prefix + names.CACHED_TOKENS] = usage.cached_tokens
    if usage.reasoning_tokens:
        found[prefix + names.REASONING_TOKENS] = usage.reasoning_tokens
    return dict(found)
