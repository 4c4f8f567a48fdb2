"""Writers of the items of a response's output. Pure.

A `function_call` asks the client to run a function. An `mcp_call` reports a tool that ran elsewhere, with its result in
the same item; clients with tools would run a `function_call` of the server's tool once more. The forms are from
https://platform.openai.com/docs/api-reference/responses-streaming.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from callboard._openai.client_functions import Json, OfferedTool
from callboard._openai.offered_tools import read_input
from callboard.calls import EndedCall, RunningCall

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


class ItemWriter:
    """Writes an item with one part of text, at position `index` of the output. Its methods yield the events."""

    head: ClassVar[Json] = {"type": "message", "role": "assistant"}
    """The first fields of the item."""
    prefix: ClassVar[str] = "msg"
    """The beginning of the item's id."""
    list_field: ClassVar[str] = "content"
    """The item's field with the list of its parts."""
    part_type: ClassVar[str]
    """The type of its part, and the name of the part's events."""
    event_prefix: ClassVar[str] = ""
    """The beginning of the names of all these events."""
    text_field: ClassVar[str] = "text"
    """The field with the whole text, of the part and of the last of these events."""
    extra: ClassVar[Json] = {}
    """Further fields of these events."""

    def __init__(self, run_id: str, index: int) -> None:
        self.index = index
        item_id = f"{self.prefix}_{run_id}_{index}"
        self._where: Json = {"item_id": item_id, "output_index": index, f"{self.list_field}_index": 0}
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def item(self, status: Literal["in_progress"] | Written) -> Json:
        """Return the item; it has no text while it is in progress."""
        parts = [] if status == "in_progress" else [self._part()]
        return {**self.head, "id": self._where["item_id"], "status": status, self.list_field: parts}

    def begin(self) -> Iterator[Json]:
        """Yield the events of its beginning, without text."""
        yield format_item_event("added", self.index, self.item("in_progress"))
        yield self._event(f"{self.list_field}_part.added", part=self._part())

    def add(self, delta: str) -> Iterator[Json]:
        """Add a piece of text, and yield its event."""
        self._pieces.append(delta)
        yield self._event(f"{self.part_type}.delta", delta=delta, **self.extra)

    def cut(self, kept_chars: int) -> None:
        """Remove the text after its first `kept_chars` characters; the events of the end have the rest."""
        self._pieces = [self.text[:kept_chars]]

    def end(self, status: Written = "completed") -> Iterator[Json]:
        """Yield the events of its end."""
        yield self._event(f"{self.part_type}.done", **{self.text_field: self.text}, **self.extra)
        yield self._event(f"{self.list_field}_part.done", part=self._part())
        yield format_item_event("done", self.index, self.item(status))

    def _event(self, name: str, **fields: Any) -> Json:
        return {"type": f"response.{self.event_prefix}{name}", **self._where, **fields}

    def _part(self) -> Json:
        return {"type": self.part_type, self.text_field: self.text}


class MessageWriter(ItemWriter):
    """Writes a message of the agent."""

    part_type = "output_text"
    extra: ClassVar[Json] = {"logprobs": []}

    def __init__(self, run_id: str, index: int) -> None:
        super().__init__(run_id, index)
        self._annotations: list[Json] = []

    def annotate(self, citations: Iterable[Json]) -> Iterator[Json]:
        """Add citations, and yield their events."""
        for citation in citations:
            annotation = {"type": "url_citation", **citation}
            place = {"annotation_index": len(self._annotations), "annotation": annotation}
            self._annotations.append(annotation)
            yield self._event("output_text.annotation.added", **place)

    def _part(self) -> Json:
        return {**super()._part(), "annotations": list(self._annotations), "logprobs": []}


class RefusalWriter(ItemWriter):
    """Writes the text with which the model refuses to answer."""

    part_type = "refusal"
    text_field = "refusal"


class ReasoningWriter(ItemWriter):
    """Writes reasoning of the model, as a summary: most clients do not show the `content` of a reasoning item."""

    head: ClassVar[Json] = {"type": "reasoning"}
    prefix = "rs"
    list_field = "summary"
    part_type = "summary_text"
    event_prefix = "reasoning_"


def build_mcp_call(run_id: str, call: RunningCall | EndedCall) -> Json:
    """Return the item of a call that the server runs.

    Its id has the place of the call: some clients send items back in the order of their ends.
    """
    round_index, sequence_index = call.place
    item: Json = {
        "type": "mcp_call",
        "id": f"mcp_{run_id}_{round_index}_{sequence_index}_{call.id}",
        "server_label": SERVER_LABEL,
        "name": call.name,
        # No user can be asked on this route.
        "approval_request_id": None,
        "arguments": _write_json(call.arguments_text),
        "status": "in_progress",
        "output": None,
        "error": None,
    }
    if isinstance(call, RunningCall):
        return item
    if call.error_code is None:
        return {**item, "status": "completed", "output": call.result_text, **list_attachments(call)}
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": call.result_text}]}
    return {**item, "status": "incomplete" if call.error_code in CUT_OFF else "failed", "error": error}


def build_function_call(item_id: str, call_id: str, tool: OfferedTool, arguments: str) -> Json:
    """Return the item of a call that is written completely, whether or not it has run; for a custom tool, of its type.

    The item has the tool's own name.
    """
    namespace = {"namespace": tool.namespace} if tool.namespace else {}
    return {
        "type": "custom_tool_call" if tool.is_custom else "function_call",
        "id": item_id,
        "call_id": call_id,
        "name": tool.name,
        **namespace,
        **({"input": read_input(arguments)} if tool.is_custom else {"arguments": arguments}),
        "status": "completed",
    }


def build_call_output(run_id: str, call: EndedCall) -> Json:
    """Return the item with the result of a call of this server, whose `function_call` came before."""
    return {
        "type": "function_call_output",
        "id": f"fco_{call.id}_{run_id}",
        "call_id": call.id,
        "status": "completed",
        # Always a list, because Open WebUI reads nothing else.
        "output": [{"type": "input_text", "text": call.result_text}],
        **list_attachments(call),
    }


def begin_item(index: int, item: Json) -> Iterator[Json]:
    """Yield the events of the item of a call, up to its whole arguments; the output of a call has none."""
    kind = item["type"]
    if kind == "function_call_output":
        yield format_item_event("added", index, item)
        return
    field = "input" if kind == "custom_tool_call" else "arguments"
    where = {"item_id": item["id"], "output_index": index}
    yield format_item_event("added", index, {**item, field: "", "status": "in_progress"})
    if kind == "mcp_call":
        yield {"type": "response.mcp_call.in_progress", **where}
    yield {"type": f"response.{kind}_{field}.delta", **where, "delta": item[field]}
    name = {"name": item["name"]} if kind == "function_call" else {}
    yield {"type": f"response.{kind}_{field}.done", **where, **name, field: item[field]}


def end_mcp_call(index: int, item: Json) -> Iterator[Json]:
    """Yield the events of the end of an `mcp_call`."""
    # OpenAI has only two event names: a call that was not completed has failed.
    ending = "completed" if item["status"] == "completed" else "failed"
    yield {"type": f"response.mcp_call.{ending}", "item_id": item["id"], "output_index": index}
    yield format_item_event("done", index, item)


def list_attachments(call: EndedCall) -> Json:
    """Return the fields of an item that show files and embeds of its call; Open WebUI reads them."""
    fields = {"files": list(call.files), "embeds": list(call.embeds)}
    return {name: value for name, value in fields.items() if value}


def format_clients_item_id(tool: OfferedTool, run_id: str, round_index: int | None, call_id: str) -> str:
    """Return the item id of a client's call; with `round_index` if the server ran calls in the same round."""
    prefix = "ctc" if tool.is_custom else "fc"
    return f"{prefix}_{call_id}" if round_index is None else f"{prefix}_{run_id}_{round_index}_{call_id}"


def _write_json(arguments: str) -> str:
    """Return the arguments as JSON, because clients parse them; text that is not JSON becomes a JSON string."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments
