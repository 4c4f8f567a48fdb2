"""Translates the events of a pydantic-ai run for a turn."""

from collections.abc import AsyncIterable, Sequence
from typing import Any

from pydantic_ai import AgentRunResultEvent
from pydantic_ai.messages import (
    AgentStreamEvent,
    CustomEvent,
    FilePart,
    FunctionToolResultEvent,
    NativeToolCallPart,
    NativeToolReturnPart,
    OutputToolCallEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from callboard.calls import ToolCall
from callboard.frameworks.progress import to_status_report
from callboard.frameworks.pydantic_ai.hooks import PydanticAIHooks
from callboard.frameworks.pydantic_ai.messages import to_file, to_tool_result
from callboard.frameworks.turn import is_same_output, to_source, to_text
from callboard_protocol import Source


class EventTranslator:
    """Translates the events of one run."""

    def __init__(self, hooks: PydanticAIHooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._calls: dict[int, tuple[str, str]] = {}
        self._is_output_call = False

    async def follow(self, events: AsyncIterable[AgentStreamEvent | AgentRunResultEvent[object]]) -> None:
        """Translate events until the run ends."""
        async for event in events:
            match event:
                case PartStartEvent():
                    self._start_part(event)
                case PartDeltaEvent():
                    self._add_delta(event)
                case PartEndEvent(part=TextPart() as text):
                    self._add_sources(text.citations)
                case PartEndEvent(part=NativeToolCallPart() as call):
                    await self._turn.calls.start(ToolCall(call.tool_call_id, call.tool_name, call.args or {}))
                case OutputToolCallEvent():
                    self._is_output_call = True
                case FunctionToolResultEvent():
                    self._end_call(event)
                case AgentRunResultEvent(result=result):
                    self._apply_output(result.output)
                case CustomEvent():
                    self._show_status(event)

    def _apply_output(self, output: object) -> None:
        """Add the run's output if the model did not write it as text, or replace the text if a validator changed it."""
        text = to_text(output)
        if self._is_output_call:
            # The output was the arguments of a call, which are not shown.
            self._turn.add_text(text)
        elif (draft := self._turn.draft.strip()) and not is_same_output(output, draft):
            self._turn.replace_text(text)

    def _start_part(self, event: PartStartEvent) -> None:
        if event.index == 0:
            self._calls.clear()
            self._is_output_call = False
            if self._hooks.has_rejected_answer:
                self._hooks.has_rejected_answer = False
                self._turn.rewind()
        match event.part:
            case TextPart(content=text):
                self._turn.add_text(text)
            case ThinkingPart(content=text):
                self._turn.add_reasoning(text)
            case FilePart(content=content) if (file := to_file(content)) is not None:
                self._turn.add_files([file])
            case NativeToolReturnPart(tool_call_id=call_id, content=content):
                self._turn.calls.complete(call_id, to_tool_result(content))
            case ToolCallPart() as call if call.tool_name not in self._hooks.output_tools:
                call_id = self._hooks.call_id(event.index, call.tool_call_id)
                self._calls[event.index] = (call_id, call.tool_name)
                if isinstance(call.args, str) and call.args:
                    self._turn.show_arguments(call_id, call.tool_name, call.args)

    def _add_delta(self, event: PartDeltaEvent) -> None:
        match event.delta:
            case TextPartDelta(content_delta=text) as delta:
                self._turn.add_text(text)
                self._add_sources(delta.citations_delta)
            case ThinkingPartDelta(content_delta=str(text)):
                self._turn.add_reasoning(text)
            case ToolCallPartDelta(args_delta=str(text)) if event.index in self._calls:
                self._turn.show_arguments(*self._calls[event.index], text)

    def _add_sources(self, citations: Sequence[Any] | None) -> None:
        for cited in (source for citation in citations or () for source in citation.sources):
            text = "\n\n".join(cited.excerpts)
            if cited.kind == "web":
                source = to_source(cited.url, cited.title, text)
            else:
                name = cited.title or cited.document_id or "document"
                source = Source(source={"name": name}, document=(text or name,), metadata=({"source": name},))
            self._turn.add_source(source)

    def _show_status(self, event: CustomEvent) -> None:
        """Show the progress that a hook of the run reports. Progress of tools has already been reported."""
        if not event.tool_call_id and (message := to_status_report(event).message):
            self._turn.show_status(message)

    def _end_call(self, event: FunctionToolResultEvent) -> None:
        part = event.part
        if part.outcome != "success":
            self._hooks.fail(part.tool_call_id, _format_reason(part.content), denied=part.outcome == "denied")
            return
        # Ends calls that were not run here. The others ended with their tools, and a second end is ignored.
        self._turn.calls.complete(part.tool_call_id, to_tool_result(part.content, event.content))


def _format_reason(content: object) -> str:
    """Return the reason for a failed call as text; pydantic's list of validation errors becomes one line."""
    if isinstance(content, list) and all(
        isinstance(error, dict) and {"loc", "msg"} <= error.keys() for error in content
    ):
        return "; ".join(": ".join(filter(None, [".".join(map(str, error["loc"])), error["msg"]])) for error in content)
    return to_text(content)
