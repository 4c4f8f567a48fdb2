"""A run as a response: its events as items that come and end, and all of them as one response. Pure.

The shape is that of https://platform.openai.com/docs/api-reference/responses-streaming. A
`function_call` says that a call has begun and never stands without its
`function_call_output`, so there is nothing in it for the client to run.

What an agent takes back is not in the response. On the stream its item ends with the text that is
left; since who reads the deltas alone has read on, the last of them says so in words.
"""

from collections.abc import Iterator
from typing import Any

from callboard.http.openai.asker import ToolActivity
from callboard.http.openai.calls import EndedCall, OpenCalls, arguments_text
from callboard.http.openai.failures import Failure
from callboard.http.openai.response_request import ResponseBody
from callboard.http.openai.sources import url_citation
from callboard.http.openai.taking_back import ends_a_draft, note_below
from callboard.http.openai.text_items import ReasoningItem, TextItem
from callboard_protocol import Done, Event, Message, Reasoning, Rewind, RunStart, Source, ToolCallStart, Usage

Json = dict[str, Any]


class ResponseAnswer:
    """One response; `created` is in seconds since the epoch."""

    last_frame = b""

    def __init__(self, run_id: str, body: ResponseBody, created: int, activity: ToolActivity) -> None:
        self._run_id = run_id
        self._head = _head(run_id, body, created)
        self._shows_calls = activity == "items"
        self._calls = OpenCalls()
        self._output: dict[int, Json] = {}
        self._items = 0
        self._open: TextItem | ReasoningItem | None = None
        self._space = ""
        self._sources: list[Source] = []
        self._ending: Json = {"status": "in_progress"}
        self._usage: Json | None = None
        self._events = 0
        self._mark()

    def feed(self, event: Event) -> list[Json]:
        """The events that this one of the run amounts to."""
        return [self._numbered(part) for part in self._parts(event)]

    def failed(self, failure: Failure) -> list[Json]:
        """What ends the stream of a run that failed."""
        code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
        self._ending = {"status": "failed", "error": {"code": code, "message": failure.message}}
        parts = [*self._close(), self._state("response.failed")]
        return [self._numbered(part) for part in parts]

    def whole(self) -> Json:
        """The response, as far as it has come."""
        return {**self._head, **self._ending, "output": list(self._output.values()), "usage": self._usage}

    def _parts(self, event: Event) -> Iterator[Json]:
        match event:
            case RunStart():
                yield self._state("response.created")
                yield self._state("response.in_progress")
            case Message(content=content):
                yield from self._say(content)
            case Reasoning(content=content):
                yield from self._write(ReasoningItem, content)
            case Rewind():
                yield from self._take_back()
            case Source():
                self._sources.append(event)
            case Usage():
                self._usage = _usage(event)
            case Done():
                yield from self._end(event)
            case _:
                yield from self._tell(event)

    def _tell(self, event: Event) -> Iterator[Json]:
        if self._shows_calls:
            ended = self._calls.see(event)
            if isinstance(event, ToolCallStart):
                yield from self._close()
                yield from self._call(event)
            elif ended:
                yield from self._close()
                yield from self._item(_output_item(ended))
        if ends_a_draft(event):
            self._mark()

    def _mark(self) -> None:
        """Remember how far the answer is: no rewind goes further back."""
        self._kept_items, self._kept_chars = self._items, len(self._open.text) if self._open else 0

    def _take_back(self) -> Iterator[Json]:
        item, self._open, self._space = self._open, None, ""
        if item is not None:
            kept_chars = self._kept_chars if item.index < self._kept_items else 0
            if isinstance(item, TextItem) and len(item.text) > kept_chars:
                yield from item.add(note_below(item.text[kept_chars:]))
            item.cut(kept_chars)
            yield from item.end("completed" if kept_chars else "incomplete")
            self._output[item.index] = item.item("completed")
        for index in range(self._kept_items, self._items):
            self._output.pop(index, None)
        self._mark()

    def _say(self, content: str) -> Iterator[Json]:
        # Blank text between two calls would be an item of its own, and nothing to see.
        content, self._space = self._space + content, ""
        if not isinstance(self._open, TextItem) and not content.strip():
            self._space = content
            return
        yield from self._write(TextItem, content)

    def _write(self, kind: type[TextItem] | type[ReasoningItem], content: str) -> Iterator[Json]:
        if not isinstance(self._open, kind):
            yield from self._close()
            index = self._next_index()
            self._open = kind(f"{kind.prefix}_{self._run_id}_{index}", index)
            self._output[index] = self._open.item("in_progress")
            yield from self._open.begin()
        yield from self._open.add(content)

    def _close(self) -> Iterator[Json]:
        """Ends the text that is being written; what was cited by then belongs to it."""
        item, self._open, self._space = self._open, None, ""
        if item is None:
            return
        if isinstance(item, TextItem):
            cited = (url_citation(source, len(item.text)) for source in self._sources)
            self._sources = []
            yield from item.annotate([citation for citation in cited if citation])
        yield from item.end()
        self._output[item.index] = item.item("completed")

    def _next_index(self) -> int:
        """The place of a new item on the stream; what was taken back had one too."""
        self._items += 1
        return self._items - 1

    def _call(self, start: ToolCallStart) -> Iterator[Json]:
        index = self._next_index()
        item = {
            "type": "function_call",
            "id": f"fc_{start.tool_call_id}",
            "call_id": start.tool_call_id,
            "name": start.tool_name,
            "arguments": arguments_text(start.tool_args),
        }
        where = {"item_id": item["id"], "output_index": index}
        yield _added(index, {**item, "arguments": "", "status": "in_progress"})
        yield {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]}
        done = {"type": "response.function_call_arguments.done", **where, "name": item["name"]}
        yield {**done, "arguments": item["arguments"]}
        # The call is written out in full and runs: that is what completed means here.
        self._output[index] = {**item, "status": "completed"}
        yield _done(index, self._output[index])

    def _item(self, item: Json) -> Iterator[Json]:
        index = self._next_index()
        self._output[index] = item
        yield _added(index, item)
        yield _done(index, item)

    def _end(self, event: Done) -> Iterator[Json]:
        yield from self._close()
        if event.finish_reason == "length":
            self._ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            yield self._state("response.incomplete")
        else:
            self._ending = {"status": "completed"}
            yield self._state("response.completed")

    def _state(self, kind: str) -> Json:
        return {"type": kind, "response": self.whole()}

    def _numbered(self, part: Json) -> Json:
        self._events += 1
        return {**part, "sequence_number": self._events - 1}


def _output_item(call: EndedCall) -> Json:
    item: Json = {
        "type": "function_call_output",
        "id": f"fco_{call.tool_call_id}",
        "call_id": call.tool_call_id,
        "status": "completed",
        # A list, also for one text: Open WebUI can read nothing else again.
        "output": [{"type": "input_text", "text": call.result}],
    }
    shown = {"files": list(call.files), "embeds": list(call.embeds)}
    return item | {name: value for name, value in shown.items() if value}


def _added(index: int, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _usage(event: Usage) -> Json:
    return {
        "input_tokens": event.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": event.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": event.total_tokens,
    }


def _head(run_id: str, body: ResponseBody, created: int) -> Json:
    """What a response repeats of its request, and what is the same for all."""
    return {
        "id": f"resp_{run_id}",
        "object": "response",
        "created_at": created,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": body.model,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": body.temperature,
        "text": {"format": (body.text.format if body.text else None) or {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }
