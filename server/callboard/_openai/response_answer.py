"""The answer of a run as a response: a stream of items, or one whole response. Pure.

The form is that of https://platform.openai.com/docs/api-reference/responses-streaming. A call that ran on this server
is an `mcp_call`. For Open WebUI it is a `function_call`, always followed by its `function_call_output`.

The response does not have text that the agent has taken back. In a stream the item ends with the remaining text; the
last delta is a note for clients that read only deltas.
"""

from collections.abc import Iterator
from copy import deepcopy

from callboard._openai.answer import OpenAIAnswer, build_citation, find_status, forbid_repetition, write_note_below
from callboard._openai.client_functions import ClientCalls, Json, OfferedTool
from callboard._openai.items import (
    ItemWriter,
    MessageWriter,
    ReasoningWriter,
    RefusalWriter,
    begin_item,
    build_call_output,
    build_function_call,
    build_mcp_call,
    end_mcp_call,
    format_clients_item_id,
    format_item_event,
)
from callboard._openai.request import ToolActivity
from callboard._openai.response_request import ResponseBody
from callboard.calls import EndedCall, RunningCall
from callboard.openwebui.drawing import DetailsWriter
from callboard.storage.values import RESPONSE_PREFIX
from callboard_protocol import (
    CallEvent,
    Done,
    Error,
    Event,
    Message,
    Reasoning,
    Rewind,
    RunStart,
    Source,
    ToolCallError,
    Usage,
)

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", "refusal": "content_filter"}
"""OpenAI's reasons for an incomplete response, by our finish reasons."""

NO_ENDING = "Error: the answer ended before this call did; whether it took effect is not known."


class ResponseAnswer(OpenAIAnswer):
    """Builds one response; `created` is in seconds since the epoch."""

    def __init__(
        self, run_id: str, body: ResponseBody, created: int, activity: ToolActivity, *, is_drawn: bool
    ) -> None:
        """`is_drawn`: by Open WebUI, so tags in the model's text are escaped, or it would show them as blocks."""
        super().__init__(ClientCalls(run_id, body.offer.form), DetailsWriter() if is_drawn else None)
        self._run_id = run_id
        self._head = _build_head(run_id, body, created)
        self._activity = activity
        self._origins = body.offer.origins
        self._output: list[Json | None] = []
        """The items by their positions, None for those that were taken back: positions never change."""
        self._places: dict[str, int] = {}
        """The positions of the `mcp_call` items, by the ids of the calls."""
        self._clients_round_index: int | None = None
        """The round in which the model called functions of the client and tools of the server."""
        self._open: ItemWriter | None = None
        self._space = ""
        self._sources: list[Source] = []
        self._has_refused = False
        self._ending: Json = {"status": "in_progress"}
        self._usage: Json | None = None
        self._events = 0
        self._mark()

    def feed(self, event: Event) -> list[Json]:
        """Return the response events for an event of the run."""
        return self._number(super().feed(event))

    def fail(self, failure: Error) -> list[Json]:
        """Return the last response events of a failed run."""
        if self.has_started_calls:
            failure = forbid_repetition(failure)
        status = find_status(failure)
        code = {400: failure.upstream_code or "invalid_prompt", 429: "rate_limit_exceeded"}.get(status, "server_error")
        self._ending = {"status": "failed", "error": {"code": code, "message": failure.message}}
        return self._number([*self._close(), *self._cut_calls_off(), self._format_state("response.failed")])

    def whole(self) -> Json:
        """Return the response so far."""
        return {**self._head, **self._ending, "output": [item for item in self._output if item], "usage": self._usage}

    def _translate(self, event: Event) -> Iterator[Json]:
        match event:
            case RunStart():
                yield self._format_state("response.created")
                yield self._format_state("response.in_progress")
            case Message():
                yield from self._add_message(event)
            case Reasoning(content=content):
                yield from self._write(ReasoningWriter, self._show_thought(content))
            case Rewind():
                yield from self._take_back()
            case Source():
                self._sources.append(event)
            case Usage():
                self._usage = _format_usage(event)
            case Done():
                yield from self._end(event)
            case CallEvent():
                yield from self._follow_call(event)
            case _:
                pass

    def _write_call(self, call: RunningCall | EndedCall) -> Iterator[Json]:
        """Yield the events of a call that has started or ended, as the client wants it."""
        match self._activity:
            case "mcp":
                yield from self._write_mcp_call(call)
            case "items":
                yield from self._close()
                if isinstance(call, RunningCall):
                    tool = OfferedTool(call.name)
                    item_id = f"fc_{call.id}_{self._run_id}"
                    item = build_function_call(item_id, call.id, tool, call.arguments_text)
                else:
                    item = build_call_output(self._run_id, call)
                yield from self._write_item(item)
            case _:
                pass

    def _write_mcp_call(self, call: RunningCall | EndedCall) -> Iterator[Json]:
        item = build_mcp_call(self._run_id, call)
        if isinstance(call, RunningCall):
            yield from self._close()
            self._places[call.id] = len(self._output)
            self._output.append(item)
            yield from begin_item(self._places[call.id], item)
            return
        if self._client_calls:
            # All calls of an answer start before the first one ends.
            self._clients_round_index, _ = call.place
        index = self._places.pop(call.id)
        self._output[index] = item
        yield from end_mcp_call(index, item)

    def _mark(self) -> None:
        self._kept_items = len(self._output)
        self._kept_chars = len(self._open.text) if self._open else 0

    def _take_back(self) -> Iterator[Json]:
        item = self._open
        self._open = None
        self._space = ""
        self._guard = deepcopy(self._kept_guard)
        if item is not None:
            kept_chars = self._kept_chars if item.index < self._kept_items else 0
            if isinstance(item, MessageWriter) and len(item.text) > kept_chars:
                yield from item.add(write_note_below(item.text[kept_chars:]))
            item.cut(kept_chars)
            yield from item.end("completed" if kept_chars else "incomplete")
            self._output[item.index] = item.item("completed")
        for index in range(self._kept_items, len(self._output)):
            self._output[index] = None
        self._mark()

    def _add_message(self, message: Message) -> Iterator[Json]:
        # Open WebUI shows only text.
        if message.refusal and self._guard is None:
            self._has_refused = True
            yield from self._write(RefusalWriter, message.content)
        else:
            yield from self._add_text(message.content)

    def _append(self, content: str) -> Iterator[Json]:
        if not content:
            return
        # White space between two calls would be an item without visible text.
        content = self._space + content
        self._space = ""
        if not isinstance(self._open, MessageWriter) and not content.strip():
            self._space = content
            return
        yield from self._write(MessageWriter, content)

    def _write(self, kind: type[ItemWriter], content: str) -> Iterator[Json]:
        if not isinstance(self._open, kind):
            # Text that the guard still holds continues the text that it has let go.
            yield from self._end_item() if kind is MessageWriter else self._close()
            self._open = kind(self._run_id, len(self._output))
            self._output.append(self._open.item("in_progress"))
            yield from self._open.begin()
        yield from self._open.add(content)

    def _close(self) -> Iterator[Json]:
        """Add the text that the guard holds, and end the open item."""
        if self._guard and (held := self._guard.finish()):
            yield from self._append(held)
        yield from self._end_item()

    def _end_item(self) -> Iterator[Json]:
        """End the open item, with the citations so far."""
        item = self._open
        self._open = None
        self._space = ""
        if item is None:
            return
        if isinstance(item, MessageWriter):
            cited = (build_citation(source, len(item.text)) for source in self._sources)
            self._sources = []
            yield from item.annotate([citation for citation in cited if citation])
        yield from item.end()
        self._output[item.index] = item.item("completed")

    def _cut_calls_off(self) -> Iterator[Json]:
        """End the calls that no event has ended: the reader was too slow and the log has dropped events."""
        for call_id in list(self._calls):
            yield from self._follow_call(ToolCallError(tool_call_id=call_id, error=NO_ENDING, code="interrupted"))

    def _write_item(self, item: Json) -> Iterator[Json]:
        """Yield all events of an item that is complete at once."""
        index = len(self._output)
        self._output.append(item)
        yield from begin_item(index, item)
        yield format_item_event("done", index, item)

    def _end(self, event: Done) -> Iterator[Json]:
        # The AI SDK refuses a complete response without numbers.
        self._usage = self._usage or _format_usage(Usage())
        yield from self._close()
        for call in self._client_calls:
            tool = self._origins.get(call.function.name) or OfferedTool(call.function.name)
            item_id = format_clients_item_id(tool, self._run_id, self._clients_round_index, call.id)
            item = build_function_call(item_id, call.id, tool, call.function.arguments)
            yield from self._write_item(item)
        reason = None if self._has_refused else _INCOMPLETE.get(event.finish_reason)
        if reason:
            self._ending = {"status": "incomplete", "incomplete_details": {"reason": reason}}
            yield self._format_state("response.incomplete")
        else:
            self._ending = {"status": "completed"}
            yield self._format_state("response.completed")

    def _format_state(self, kind: str) -> Json:
        return {"type": kind, "response": self.whole()}

    def _number(self, parts: list[Json]) -> list[Json]:
        first = self._events
        self._events += len(parts)
        return [{**part, "sequence_number": number} for number, part in enumerate(parts, first)]


def _format_usage(event: Usage) -> Json:
    return {
        "input_tokens": event.input_tokens,
        "input_tokens_details": {"cached_tokens": event.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": event.output_tokens,
        "output_tokens_details": {"reasoning_tokens": event.reasoning_tokens},
        "total_tokens": event.total_tokens,
    }


def _build_head(run_id: str, body: ResponseBody, created: int) -> Json:
    """Return the fields that a response repeats from its request, and the constant fields."""
    return {
        "id": f"{RESPONSE_PREFIX}{run_id}",
        "object": "response",
        "created_at": created,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": body.model,
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": body.is_stored,
        "temperature": body.temperature,
        "text": {"format": (body.text.format if body.text else None) or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": list(body.tools or ()),
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }
