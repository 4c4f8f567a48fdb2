"""The answer of a run as a response: a stream of items, or one whole response. Pure.

The form is that of https://platform.openai.com/docs/api-reference/responses-streaming. A call that ran on this server
is an `mcp_call`. For Open WebUI it is a `function_call`, always followed by its `function_call_output`.

The response does not have text that the agent has taken back. In a stream the item ends with the remaining text; the
last delta is a note for clients that read only deltas.
"""

from collections.abc import Iterator
from typing import Any, Literal

from callboard._http.openai.answer import (
    Answer,
    Failure,
    build_citation,
    write_note_below,
)
from callboard._http.openai.client_functions import ClientCalls, OfferedTool
from callboard._http.openai.items import (
    McpCallWriter,
    ReasoningWriter,
    RefusalWriter,
    TextWriter,
    format_clients_item_id,
    format_item_event,
    list_attachments,
)
from callboard._http.openai.request import ToolActivity
from callboard._http.openai.response_request import ResponseBody
from callboard._http.openai.tool_registry import read_input
from callboard._openwebui.details import DetailsWriter
from callboard.calls import EndedCall, RunningCall, follow_call
from callboard.storage import RESPONSE_PREFIX
from callboard_protocol import (
    Done,
    Event,
    Message,
    Reasoning,
    Rewind,
    RunStart,
    Source,
    ToolCallComplete,
    ToolCallError,
    ToolCallExternal,
    ToolCallPart,
    ToolCallStart,
    Usage,
)

Json = dict[str, Any]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", "refusal": "content_filter"}
"""OpenAI's reasons for an incomplete response, by our finish reasons."""

NO_ENDING = "Error: the answer ended before this call did; whether it took effect is not known."


class ResponseAnswer(Answer):
    """Builds one response; `created` is in seconds since the epoch."""

    def __init__(
        self, run_id: str, body: ResponseBody, created: int, activity: ToolActivity, *, is_drawn: bool = False
    ) -> None:
        """`is_drawn`: by Open WebUI, so tags in the model's text are escaped, or it would show them as blocks."""
        self._run_id = run_id
        self._head = _build_head(run_id, body, created)
        self._activity = activity
        self._guard = DetailsWriter() if is_drawn else None
        self._calls: dict[str, RunningCall | EndedCall] = {}
        self._mcp_calls: dict[str, McpCallWriter] = {}
        self._round_index: int | None = None
        self._clients_round_index: int | None = None
        """The round in which the model called functions of the client and tools of the server."""
        self._output: dict[int, Json] = {}
        self._items = 0
        self._open: TextWriter | ReasoningWriter | RefusalWriter | None = None
        self._space = ""
        self._sources: list[Source] = []
        self._client_calls = ClientCalls(run_id, body.offer.form)
        self._has_refused = False
        self._origins = body.offer.origins
        self._ending: Json = {"status": "in_progress"}
        self._usage: Json | None = None
        self._events = 0
        self._mark()

    def feed(self, event: Event) -> list[Json]:
        """Return the response events for an event of the run."""
        return [self._number(part) for part in self._translate(event)]

    def fail(self, failure: Failure) -> list[Json]:
        """Return the last response events of a failed run."""
        code = {400: failure.upstream_code or "invalid_prompt", 429: "rate_limit_exceeded"}.get(
            failure.status, "server_error"
        )
        self._ending = {"status": "failed", "error": {"code": code, "message": failure.message}}
        parts = [*self._close(), *self._cut_calls_off(), self._format_state("response.failed")]
        return [self._number(part) for part in parts]

    def whole(self) -> Json:
        """Return the response so far."""
        return {**self._head, **self._ending, "output": list(self._output.values()), "usage": self._usage}

    def _translate(self, event: Event) -> Iterator[Json]:
        if self._client_calls.take(event):
            yield from self._follow_call(event)
            return
        if words := self._client_calls.release_text(event):
            yield from self._add_text(words)
        match event:
            case RunStart():
                yield self._format_state("response.created")
                yield self._format_state("response.in_progress")
            case Message():
                yield from self._add_message(event)
            case Reasoning(content=content):
                yield from self._write(ReasoningWriter, content)
            case Rewind():
                yield from self._take_back()
            case Source():
                self._sources.append(event)
            case Usage():
                self._usage = _format_usage(event)
            case Done():
                yield from self._end(event)
            case _:
                yield from self._follow_call(event)

    def _follow_call(self, event: Event) -> Iterator[Json]:
        """Yield the events of a call that starts or ends, as the client wants it."""
        if isinstance(event, ToolCallExternal) and self._mcp_calls:
            self._clients_round_index = self._round_index
        if not isinstance(event, ToolCallStart | ToolCallComplete | ToolCallError):
            return
        match follow_call(self._calls, event):
            case RunningCall() as call:
                yield from self._begin_call(call)
            case EndedCall() as call:
                del self._calls[call.id]
                yield from self._end_call(call)
            case None:
                pass
        self._mark()

    def _begin_call(self, call: RunningCall) -> Iterator[Json]:
        if self._activity == "mcp":
            yield from self._close()
            self._round_index, _ = call.place
            if self._client_calls.has_calls:
                self._clients_round_index = self._round_index
            index = self._next_index()
            item = self._mcp_calls[call.id] = McpCallWriter(self._run_id, index, call)
            self._output[index] = item.item
            yield from item.begin()
        elif self._activity == "items":
            yield from self._close()
            yield from self._write_call(f"fc_{call.id}", call.id, call.name, call.arguments_text)

    def _end_call(self, call: EndedCall) -> Iterator[Json]:
        if self._activity == "mcp":
            item = self._mcp_calls.pop(call.id)
            yield from item.end(call)
            self._output[item.index] = item.item
        elif self._activity == "items":
            yield from self._close()
            yield from self._write_output(call)

    def _mark(self) -> None:
        """Remember the current end of the answer; a rewind goes back to it."""
        self._kept_items = self._items
        self._kept_chars = len(self._open.text) if self._open else 0

    def _take_back(self) -> Iterator[Json]:
        item = self._open
        self._open = None
        self._space = ""
        if self._guard:
            self._guard = DetailsWriter()
        if item is not None:
            kept_chars = self._kept_chars if item.index < self._kept_items else 0
            if isinstance(item, TextWriter) and len(item.text) > kept_chars:
                yield from item.add(write_note_below(item.text[kept_chars:]))
            item.cut(kept_chars)
            yield from item.end("completed" if kept_chars else "incomplete")
            self._output[item.index] = item.item("completed")
        for index in range(self._kept_items, self._items):
            self._output.pop(index, None)
        self._mark()

    def _add_message(self, message: Message) -> Iterator[Json]:
        # Open WebUI shows only text.
        if message.refusal and self._guard is None:
            self._has_refused = True
            yield from self._write(RefusalWriter, message.content)
        else:
            yield from self._add_text(message.content)

    def _add_text(self, content: str) -> Iterator[Json]:
        yield from self._add_escaped(self._guard.add_text(content) if self._guard else content)

    def _add_escaped(self, content: str) -> Iterator[Json]:
        if not content:
            return
        # White space between two calls would be an item without visible text.
        content = self._space + content
        self._space = ""
        if not isinstance(self._open, TextWriter) and not content.strip():
            self._space = content
            return
        yield from self._write(TextWriter, content)

    def _write(
        self, kind: type[TextWriter] | type[ReasoningWriter] | type[RefusalWriter], content: str
    ) -> Iterator[Json]:
        if not isinstance(self._open, kind):
            yield from self._close()
            index = self._next_index()
            self._open = kind(f"{kind.prefix}_{self._run_id}_{index}", index)
            self._output[index] = self._open.item("in_progress")
            yield from self._open.begin()
        yield from self._open.add(content)

    def _close(self) -> Iterator[Json]:
        """End the open item, with the citations so far."""
        if self._guard and (held := self._guard.finish()):
            yield from self._add_escaped(held)
        item = self._open
        self._open = None
        self._space = ""
        if item is None:
            return
        if isinstance(item, TextWriter):
            cited = (build_citation(source, len(item.text)) for source in self._sources)
            self._sources = []
            yield from item.annotate([citation for citation in cited if citation])
        yield from item.end()
        self._output[item.index] = item.item("completed")

    def _cut_calls_off(self) -> Iterator[Json]:
        """End the calls that no event has ended: the reader was too slow and the log has dropped events."""
        for call_id in list(self._mcp_calls):
            yield from self._follow_call(ToolCallError(tool_call_id=call_id, error=NO_ENDING, code="interrupted"))

    def _next_index(self) -> int:
        """Return the position of a new item; items that were taken back keep theirs."""
        self._items += 1
        return self._items - 1

    def _write_clients_call(self, call: ToolCallPart) -> Iterator[Json]:
        """Yield the events of a call of a client's tool, with the tool's own name."""
        name, arguments = call.function.name, call.function.arguments
        origin = self._origins.get(name) or OfferedTool(name)
        kind: Literal["fc", "ctc"] = "ctc" if origin.is_custom else "fc"
        item_id = format_clients_item_id(kind, self._run_id, self._clients_round_index, call.id)
        if origin.is_custom:
            yield from self._write_custom_call(item_id, call.id, origin, read_input(arguments))
        else:
            yield from self._write_call(item_id, call.id, origin.name, arguments, origin.namespace)

    def _write_custom_call(self, item_id: str, call_id: str, tool: OfferedTool, text: str) -> Iterator[Json]:
        """Yield all events of a `custom_tool_call`."""
        index = self._next_index()
        head = {"type": "custom_tool_call", "id": item_id, "call_id": call_id, "name": tool.name}
        head |= {"namespace": tool.namespace} if tool.namespace else {}
        where = {"item_id": item_id, "output_index": index}
        yield format_item_event("added", index, {**head, "input": "", "status": "in_progress"})
        yield {"type": "response.custom_tool_call_input.delta", **where, "delta": text}
        yield {"type": "response.custom_tool_call_input.done", **where, "input": text}
        self._output[index] = {**head, "input": text, "status": "completed"}
        yield format_item_event("done", index, self._output[index])

    def _write_call(
        self, item_id: str, call_id: str, name: str, arguments: str, namespace: str | None = None
    ) -> Iterator[Json]:
        """Yield all events of a `function_call`."""
        index = self._next_index()
        head = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
        head |= {"namespace": namespace} if namespace else {}
        where = {"item_id": item_id, "output_index": index}
        yield format_item_event("added", index, {**head, "arguments": "", "status": "in_progress"})
        yield {"type": "response.function_call_arguments.delta", **where, "delta": arguments}
        yield {"type": "response.function_call_arguments.done", **where, "name": name, "arguments": arguments}
        # Completed means that the call is written completely, whether or not it has run.
        self._output[index] = {**head, "arguments": arguments, "status": "completed"}
        yield format_item_event("done", index, self._output[index])

    def _write_output(self, call: EndedCall) -> Iterator[Json]:
        index = self._next_index()
        self._output[index] = {
            "type": "function_call_output",
            "id": f"fco_{call.id}",
            "call_id": call.id,
            "status": "completed",
            # Always a list, because Open WebUI reads nothing else.
            "output": [{"type": "input_text", "text": call.result_text}],
            **list_attachments(call),
        }
        yield format_item_event("added", index, self._output[index])
        yield format_item_event("done", index, self._output[index])

    def _end(self, event: Done) -> Iterator[Json]:
        words, calls = self._client_calls.end(event)
        if words:
            yield from self._add_text(words)
        yield from self._close()
        for call in calls:
            yield from self._write_clients_call(call)
        reason = None if self._has_refused else _INCOMPLETE.get(event.finish_reason)
        if reason:
            self._ending = {"status": "incomplete", "incomplete_details": {"reason": reason}}
            yield self._format_state("response.incomplete")
        else:
            self._ending = {"status": "completed"}
            yield self._format_state("response.completed")

    def _format_state(self, kind: str) -> Json:
        return {"type": kind, "response": self.whole()}

    def _number(self, part: Json) -> Json:
        self._events += 1
        return {**part, "sequence_number": self._events - 1}


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
        "store": body.store is not False,
        "temperature": body.temperature,
        "text": {"format": (body.text.format if body.text else None) or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": list(body.tools or ()),
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }
