"""The events of a run of pydantic-ai, told to a turn."""

from collections.abc import AsyncIterable, Sequence
from typing import Any

from pydantic_ai import AgentRunResultEvent
from pydantic_ai.messages import (
    AgentStreamEvent,
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
from pydantic_core import from_json, to_json, to_jsonable_python

from callboard.calls import ToolCall
from callboard.frameworks.progress import report_of
from callboard.frameworks.pydantic_ai.hooks import Hooks
from callboard.frameworks.pydantic_ai.messages import file_of, result_of
from callboard.frameworks.turn import source_of
from callboard_protocol import Source


class EventTranslator:
    """The translator of one run, and what it has told so far."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._written: dict[int, tuple[str, str]] = {}
        self._structured = False
        self._cited: set[str] = set()

    async def follow(self, events: AsyncIterable[AgentStreamEvent | AgentRunResultEvent[object]]) -> None:
        """Tell the run until it ends."""
        async for event in events:
            match event:
                case PartStartEvent():
                    self._begin(event)
                case PartDeltaEvent():
                    self._go_on(event)
                case PartEndEvent(part=TextPart() as said):
                    self._cite(getattr(said, "citations", None))
                case PartEndEvent(part=NativeToolCallPart() as call):
                    await self._turn.calls.start(ToolCall(call.tool_call_id, call.tool_name, call.args or {}))
                case OutputToolCallEvent():
                    self._structured = True
                case FunctionToolResultEvent():
                    self._end(event)
                case AgentRunResultEvent(result=result):
                    self._complete(result.output)
                # By its name: older releases have no such class.
                case _ if getattr(event, "event_kind", "") == "custom":
                    self._report(event)

    def _complete(self, output: object) -> None:
        """Say the run's output where the model has not said it, or where a validator has replaced it."""
        text = output if isinstance(output, str) else _json(output)
        if self._structured:
            # It was the arguments of a call, which are not shown.
            self._turn.say(text)
        elif (said := self._turn.draft.strip()) and not _is_same(output, said):
            self._turn.replace(text)

    def _begin(self, event: PartStartEvent) -> None:
        if event.index == 0:
            self._written.clear()
            self._structured = False
            if self._hooks.has_rejected:
                self._hooks.has_rejected = False
                self._turn.rewind()
        match event.part:
            case TextPart(content=text):
                self._turn.say(text)
            case ThinkingPart(content=text):
                self._turn.think(text)
            case FilePart(content=content) if (file := file_of(content)) is not None:
                self._turn.show_files([file])
            case NativeToolReturnPart(tool_call_id=call_id, content=content):
                self._turn.calls.complete(call_id, result_of(content))
            case ToolCallPart() as call if call.tool_name not in self._hooks.output_tools:
                call_id = self._hooks.call_id(event.index, call.tool_call_id)
                self._written[event.index] = (call_id, call.tool_name)
                if isinstance(call.args, str) and call.args:
                    self._turn.show_arguments(call_id, call.tool_name, call.args)

    def _go_on(self, event: PartDeltaEvent) -> None:
        match event.delta:
            case TextPartDelta(content_delta=text) as delta:
                self._turn.say(text)
                self._cite(getattr(delta, "citations_delta", None))
            case ThinkingPartDelta(content_delta=str(text)):
                self._turn.think(text)
            case ToolCallPartDelta(args_delta=str(text)) if event.index in self._written:
                self._turn.show_arguments(*self._written[event.index], text)

    def _cite(self, citations: Sequence[Any] | None) -> None:
        for cited in (source for citation in citations or () for source in citation.sources):
            text = "\n\n".join(cited.excerpts)
            if cited.kind == "web":
                key = cited.url
                source = source_of(cited.url, cited.title, text)
            else:
                key = cited.title or cited.document_id or "document"
                source = Source(source={"name": key}, document=(text or key,), metadata=({"source": key},))
            if key not in self._cited:
                self._cited.add(key)
                self._turn.cite(source)

    def _report(self, event: Any) -> None:
        """Tell what a hook of the run reports; what a tool does has been told."""
        if not event.tool_call_id and (message := report_of(event).message):
            self._turn.show_status(message)

    def _end(self, event: FunctionToolResultEvent) -> None:
        part = event.part
        if (outcome := getattr(part, "outcome", "retried")) != "success":
            self._hooks.fail(part.tool_call_id, _reason(part.content), denied=outcome == "denied")
            return
        # For those that were not run here: the others have ended when their tools did.
        self._turn.calls.complete(part.tool_call_id, result_of(part.content, event.content))


def _reason(content: object) -> str:
    """Return what is wrong with a call: as text, or as pydantic lists what does not fit."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(one, dict) and {"loc", "msg"} <= one.keys() for one in content):
        return "; ".join(": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]])) for one in content)
    return _json(content)


def _is_same(output: object, said: str) -> bool:
    """Return whether a run's output is the text that its model has said, or the object written in it."""
    if isinstance(output, str):
        return output.strip() == said
    try:
        return bool(from_json(said) == to_jsonable_python(output, serialize_unknown=True))
    except ValueError:
        # A function has made it of text.
        return True


def _json(value: object) -> str:
    return to_json(value, serialize_unknown=True).decode()
