"""The items of a response's output, as they are written. Pure.

A `function_call` asks the client to run something; an `mcp_call` tells it that a tool ran elsewhere, with its result
in the same item. The shapes are those of https://platform.openai.com/docs/api-reference/responses-streaming.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from callboard.calls import EndedCall, RunningCall

Json = dict[str, Any]
Written = Literal["completed", "incomplete"]
"""The endings of an item: `incomplete` is one of which nothing is left."""

SERVER_LABEL = "callboard"
"""OpenAI names the MCP server that ran a call; all of these ran on this one."""

CUT_OFF = frozenset({"cancelled", "interrupted"})
"""The codes of calls that did not come to an end of their own: how far they got is not known."""

MCP_ITEM_ID = re.compile(r"mcp_([0-9a-f]{32}_\d{1,9})_(\d{1,9})_(.+)", re.DOTALL)
CLIENTS_ITEM_ID = re.compile(r"(?:fc|ctc)_([0-9a-f]{32}_\d{1,9})_.+", re.DOTALL)


def format_item_event(change: Literal["added", "done"], index: int, item: Json) -> Json:
    """Return the event of an item that comes, or is whole; `index` is its place in the response's output."""
    return {"type": f"response.output_item.{change}", "output_index": index, "item": item}


class ItemWriter(ABC):
    """A writer of an item with one part of text, at `index` of the response's output; each method yields its events."""

    prefix: ClassVar[str]
    """The beginning of the ids of its kind."""
    text_event: ClassVar[str]
    """The name of its pieces on the stream."""
    text_field: ClassVar[str] = "text"
    """The field of the event that has the whole text."""
    extra: ClassVar[Json] = {}
    """Fields that OpenAI adds to each piece."""

    def __init__(self, item_id: str, index: int) -> None:
        self.index = index
        self._where: Json = {"item_id": item_id, "output_index": index, "content_index": 0}
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def item(self, status: Literal["in_progress"] | Written) -> Json:
        """Return the item as it stands; it has no text before it is whole."""
        content = [] if status == "in_progress" else [self._part()]
        return {**self._head(), "id": self._where["item_id"], "status": status, "content": content}

    def begin(self) -> Iterator[Json]:
        """Tell that it opens, without any text."""
        yield format_item_event("added", self.index, self.item("in_progress"))
        yield {"type": "response.content_part.added", **self._where, "part": self._part()}

    def add(self, delta: str) -> Iterator[Json]:
        """Tell that it grows."""
        self._pieces.append(delta)
        yield {"type": f"{self.text_event}.delta", **self._where, "delta": delta, **self.extra}

    def cut(self, kept_chars: int) -> None:
        """Take back all but its beginning; its end tells what is left."""
        self._pieces = [self.text[:kept_chars]]

    def end(self, status: Written = "completed") -> Iterator[Json]:
        """Tell that it is whole."""
        yield {"type": f"{self.text_event}.done", **self._where, self.text_field: self.text, **self.extra}
        yield {"type": "response.content_part.done", **self._where, "part": self._part()}
        yield format_item_event("done", self.index, self.item(status))

    @abstractmethod
    def _head(self) -> Json: ...

    @abstractmethod
    def _part(self) -> Json: ...


class TextWriter(ItemWriter):
    """A writer of a message of the agent."""

    prefix = "msg"
    text_event = "response.output_text"
    extra: ClassVar[Json] = {"logprobs": []}

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        self._annotations: list[Json] = []

    def annotate(self, citations: Sequence[Json]) -> Iterator[Json]:
        """Tell that it cites sources."""
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
    """A writer of the words in which the model refuses to answer."""

    prefix = "msg"
    text_event = "response.refusal"
    text_field = "refusal"

    def _head(self) -> Json:
        return {"type": "message", "role": "assistant"}

    def _part(self) -> Json:
        return {"type": "refusal", "refusal": self.text}


class ReasoningWriter(ItemWriter):
    """A writer of a thought of the model."""

    prefix = "rs"
    text_event = "response.reasoning_text"

    def _head(self) -> Json:
        return {"type": "reasoning", "summary": []}

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}


class McpCallWriter:
    """A writer of a call that the server runs, at `index` of the response's output; each method yields its events."""

    def __init__(self, run_id: str, index: int, call: RunningCall) -> None:
        self.index = index
        self._arguments = _write_json(call.arguments_text)
        round_index, sequence_index = call.place
        self.item: Json = {
            "type": "mcp_call",
            "id": f"mcp_{run_id}_{round_index}_{sequence_index}_{call.id}",
            "server_label": SERVER_LABEL,
            "name": call.name,
            # Nobody can be asked on this route.
            "approval_request_id": None,
            "arguments": self._arguments,
            "status": "in_progress",
            "output": None,
            "error": None,
        }
        self._where: Json = {"item_id": self.item["id"], "output_index": index}

    def begin(self) -> Iterator[Json]:
        """Tell that it runs, with these arguments."""
        yield format_item_event("added", self.index, {**self.item, "arguments": ""})
        yield {"type": "response.mcp_call.in_progress", **self._where}
        yield {"type": "response.mcp_call_arguments.delta", **self._where, "delta": self._arguments}
        yield {"type": "response.mcp_call_arguments.done", **self._where, "arguments": self._arguments}

    def end(self, call: EndedCall) -> Iterator[Json]:
        """Yield the events of its end; `item` is whole from here on."""
        if call.error_code is None:
            ending = "completed"
            self.item = {**self.item, "status": ending, "output": call.result_text, **list_attachments(call)}
        else:
            # OpenAI has no third ending: what is not completed has failed.
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
    """Return the id of a call for the client; `round_index` is given where the server ran calls of the same round."""
    return f"{prefix}_{call_id}" if round_index is None else f"{prefix}_{run_id}_{round_index}_{call_id}"


def _write_json(arguments: str) -> str:
    """Return the arguments as JSON, which clients parse without asking: text that is none as a JSON string."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments
