"""Writers of the items of a response's output. Pure.

A `function_call` asks the client to run a function. An `mcp_call` reports a tool that ran elsewhere, with its result in
the same item. The forms are from https://platform.openai.com/docs/api-reference/responses-streaming.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from callboard.calls import EndedCall, RunningCall

Json = dict[str, Any]
Written = Literal["completed", "incomplete"]
"""How an item ends; an `incomplete` item has no text left."""

SERVER_LABEL = "callboard"
"""The name of the MCP server that ran a call: this server."""

CUT_OFF = frozenset({"cancelled", "interrupted"})
"""The error codes of calls that were stopped: whether they took effect is not known."""

MCP_ITEM_ID = re.compile(r"mcp_([0-9a-f]{32}_\d{1,9})_(\d{1,9})_(.+)", re.DOTALL)
CLIENTS_ITEM_ID = re.compile(r"(?:fc|ctc)_([0-9a-f]{32}_\d{1,9})_.+", re.DOTALL)


def format_item_event(change: Literal["added", "done"], index: int, item: Json) -> Json:
    """Return the event of an item that begins or is complete; `index` is its position in the output."""
    return {"type": f"response.output_item.{change}", "output_index": index, "item": item}


class ItemWriter(ABC):
    """Writes an item with one part of text, at position `index` of the output. Its methods yield the events."""

    prefix: ClassVar[str]
    """The beginning of the item's id."""
    text_event: ClassVar[str]
    """The name of the events with its pieces."""
    text_field: ClassVar[str] = "text"
    """The field with the whole text in the last of these events."""
    extra: ClassVar[Json] = {}
    """Further fields of these events."""

    def __init__(self, item_id: str, index: int) -> None:
        self.index = index
        self._where: Json = {"item_id": item_id, "output_index": index, "content_index": 0}
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def item(self, status: Literal["in_progress"] | Written) -> Json:
        """Return the item; it has no text while it is in progress."""
        content = [] if status == "in_progress" else [self._part()]
        return {**self._head(), "id": self._where["item_id"], "status": status, "content": content}

    def begin(self) -> Iterator[Json]:
        """Yield the events of its beginning, without text."""
        yield format_item_event("added", self.index, self.item("in_progress"))
        yield {"type": "response.content_part.added", **self._where, "part": self._part()}

    def add(self, delta: str) -> Iterator[Json]:
        """Add a piece of text, and yield its event."""
        self._pieces.append(delta)
        yield {"type": f"{self.text_event}.delta", **self._where, "delta": delta, **self.extra}

    def cut(self, kept_chars: int) -> None:
        """Remove the text after its first `kept_chars` characters; the events of the end have the rest."""
        self._pieces = [self.text[:kept_chars]]

    def end(self, status: Written = "completed") -> Iterator[Json]:
        """Yield the events of its end."""
        yield {"type": f"{self.text_event}.done", **self._where, self.text_field: self.text, **self.extra}
        yield {"type": "response.content_part.done", **self._where, "part": self._part()}
        yield format_item_event("done", self.index, self.item(status))

    @abstractmethod
    def _head(self) -> Json: ...

    @abstractmethod
    def _part(self) -> Json: ...


class TextWriter(ItemWriter):
    """Writes a message of the agent."""

    prefix = "msg"
    text_event = "response.output_text"
    extra: ClassVar[Json] = {"logprobs": []}

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        self._annotations: list[Json] = []

    def annotate(self, citations: Sequence[Json]) -> Iterator[Json]:
        """Add citations, and yield their events."""
        for citation in citations:
            annotation = {"type": "url_citation", **citation}
            place = {"annotation_index": len(self._annotations), "annotation": annotation}
            self._annotations.append(annotation)
            yield {"type": "response.output_text.annotation.added", **self._where, **place}

    def _head(self) -> Json:
        return {"type": "message", "role": "assistant"}

    def _part(self) -> Json:
        return {"type": "output_text", "text": self.text, "annotations": list(self._annotations), "logprobs": []}


class RefusalWriter(ItemWriter):
    """Writes the text with which the model refuses to answer."""

    prefix = "msg"
    text_event = "response.refusal"
    text_field = "refusal"

    def _head(self) -> Json:
        return {"type": "message", "role": "assistant"}

    def _part(self) -> Json:
        return {"type": "refusal", "refusal": self.text}


class ReasoningWriter(ItemWriter):
    """Writes reasoning of the model."""

    prefix = "rs"
    text_event = "response.reasoning_text"

    def _head(self) -> Json:
        return {"type": "reasoning", "summary": []}

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}


class McpCallWriter:
    """Writes a call that the server runs, at position `index` of the output. Its methods yield the events."""

    def __init__(self, run_id: str, index: int, call: RunningCall) -> None:
        self.index = index
        self._arguments = _write_json(call.arguments_text)
        round_index, sequence_index = call.place
        self.item: Json = {
            "type": "mcp_call",
            "id": f"mcp_{run_id}_{round_index}_{sequence_index}_{call.id}",
            "server_label": SERVER_LABEL,
            "name": call.name,
            # No user can be asked on this route.
            "approval_request_id": None,
            "arguments": self._arguments,
            "status": "in_progress",
            "output": None,
            "error": None,
        }
        self._where: Json = {"item_id": self.item["id"], "output_index": index}

    def begin(self) -> Iterator[Json]:
        """Yield the events of its start, with its arguments."""
        yield format_item_event("added", self.index, {**self.item, "arguments": ""})
        yield {"type": "response.mcp_call.in_progress", **self._where}
        yield {"type": "response.mcp_call_arguments.delta", **self._where, "delta": self._arguments}
        yield {"type": "response.mcp_call_arguments.done", **self._where, "arguments": self._arguments}

    def end(self, call: EndedCall) -> Iterator[Json]:
        """Yield the events of its end; then `item` is complete."""
        if call.error_code is None:
            ending = "completed"
            self.item = {**self.item, "status": ending, "output": call.result_text, **list_attachments(call)}
        else:
            # OpenAI has only two event names: a call that was not completed has failed.
            ending = "failed"
            status = "incomplete" if call.error_code in CUT_OFF else ending
            error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": call.result_text}]}
            self.item = {**self.item, "status": status, "error": error}
        yield {"type": f"response.mcp_call.{ending}", **self._where}
        yield format_item_event("done", self.index, self.item)


def list_attachments(call: EndedCall) -> Json:
    """Return the fields of an item that show files and embeds of its call; Open WebUI reads them."""
    fields = {"files": list(call.files), "embeds": list(call.embeds)}
    return {name: value for name, value in fields.items() if value}


def format_clients_item_id(prefix: Literal["fc", "ctc"], run_id: str, round_index: int | None, call_id: str) -> str:
    """Return the item id of a client's call; with `round_index` if the server ran calls in the same round."""
    return f"{prefix}_{call_id}" if round_index is None else f"{prefix}_{run_id}_{round_index}_{call_id}"


def _write_json(arguments: str) -> str:
    """Return the arguments as JSON, because clients parse them; text that is not JSON becomes a JSON string."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments
