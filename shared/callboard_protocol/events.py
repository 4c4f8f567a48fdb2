"""Every event a run may send, one frozen class each, told apart by `type`.

The wire types know neither server nor pipe: both sides import them, they import
pydantic alone. What the fields mean and what a stream of them promises is in
ARCHITECTURE.md, "The protocol"; docs/reference/events.md is written from this file.

A class of `Event` with a `type` of its own is all that a new event needs: it is decoded by that type, exported from
`callboard_protocol` where it stands here, and goes from an agent to its listeners as any other.
"""

from collections.abc import Hashable
from operator import not_
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from callboard_protocol.wire import MAX_FILES_BYTES, MAX_TEXT_BYTES, Limit, Line, Name, Pieces, RequestId, Text, Wire

_IMPORTED = frozenset(globals())

PROTOCOL_VERSION = 1

FinishReason = Literal["stop", "length", "max_turns", "tool_calls", "content_filter", "refusal", "cancelled"]

EVENT_CLASSES: dict[str, type["Event"]] = {}
"""The class of each `type` that is known, in the order of their definition."""


class Event(Wire):
    """The base of all events; a class with a default for `type` is known by it from its definition on.

    A field's `Limit` bounds it on the wire; one without is bounded as `Text` is. Raises `TypeError` for a `type`
    that another class has.
    """

    type: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        kind = cls.model_fields["type"].default
        if not isinstance(kind, str):
            return  # a base of several events
        known = EVENT_CLASSES.get(kind)
        if known and known.__qualname__ != cls.__qualname__:
            raise TypeError(
                f"{cls.__qualname__} has the type {kind!r}, which is {known.__qualname__}'s: choose another"
            )
        EVENT_CLASSES[kind] = cls


class TextEvent(Event):
    """The base of events that are a piece of a longer text: they may be joined and cut, at any place."""

    text_field: ClassVar[str] = "content"

    @property
    def text(self) -> str:
        """Return the piece."""
        piece: str = getattr(self, self.text_field)
        return piece

    @property
    def stream(self) -> Hashable:
        """Return what the pieces of one text have in common."""
        return self.type

    def with_text(self, text: str) -> Self:
        """Return the event with another piece in its place."""
        return self.model_copy(update={self.text_field: text})


class CallEvent(Event):
    """The base of events of one tool call, from its start on."""

    tool_call_id: str


class RunStart(Event):
    """The first event, always."""

    type: Literal["run_start"] = "run_start"
    run_id: str
    agent: str
    protocol: int = PROTOCOL_VERSION


class Status(Event):
    """One line about the run as a whole."""

    type: Literal["status"] = "status"
    content: Line
    done: bool = False


class Message(TextEvent):
    """Answer text, to be appended; `refusal` is true for the words in which the model refuses to answer."""

    type: Literal["message"] = "message"
    content: Pieces
    refusal: bool = Field(default=False, exclude_if=not_)

    @property
    def stream(self) -> Hashable:
        """Return what the pieces of one text have in common."""
        return self.type, self.refusal


class Reasoning(TextEvent):
    """Reasoning text, to be appended to the reasoning."""

    type: Literal["reasoning"] = "reasoning"
    content: Pieces


class Rewind(Event):
    """Takes back what was said since the last tool call event, or since the start.

    That is all text and reasoning since the last start or end of a call, and calls whose arguments
    were being written and that have not started. Calls, sources and statuses stay as they are.
    """

    type: Literal["rewind"] = "rewind"


class ToolCallArgsDelta(TextEvent):
    """A piece of the arguments while the model still writes them; may precede `tool_call_start`."""

    type: Literal["tool_call_args_delta"] = "tool_call_args_delta"
    tool_call_id: str
    tool_name: Name = ""
    delta: Pieces

    text_field: ClassVar[str] = "delta"

    @property
    def stream(self) -> Hashable:
        """Return what the pieces of one call's arguments have in common."""
        return self.type, self.tool_call_id


class ToolCallStart(CallEvent):
    """The call begins.

    `tool_args` is the JSON object that the tool is given, or the text as the model wrote it where that is not a JSON
    object. `round_index` counts the turn's sequential rounds and `sequence_index` the calls within one, both from 0;
    the recorder fills them in. `stoppable` is false for a tool that a stop may not end: a plain function in its thread.
    `label` names the call for a person: the tool's title and the argument that tells the call from others; empty if the
    name alone says as much. `parent_call_id` is the call that brought this one about, empty for the agent's own calls:
    it started a team member, a sub-agent or an agent in a tool, or handed over to another agent. The next turn's model
    is told of the parent alone.
    """

    type: Literal["tool_call_start"] = "tool_call_start"
    tool_call_id: str = ""
    tool_name: Name
    tool_args: Annotated[dict[str, Any] | str, Limit(MAX_TEXT_BYTES, "as_text")] = Field(default_factory=dict)
    round_index: int = Field(default=0, ge=0)
    sequence_index: int = Field(default=0, ge=0)
    stoppable: bool = True
    label: Annotated[str, Limit(256)] = Field(default="", exclude_if=not_)
    parent_call_id: str = Field(default="", exclude_if=not_)


FROM_TEXT_STATUS = "from_text"
"""The status of a call that was read from the model's text, where nobody asked for calls."""


class ToolStatusData(Wire):
    """One step of a running call: `progress` is a percentage from 0 to 100, or None where it is not known."""

    status: Annotated[str, Limit(64)]
    message: Line = ""
    progress: float | None = Field(default=None, ge=0, le=100)


class ToolStatus(CallEvent):
    """The progress of a call; only between its start and its end."""

    type: Literal["tool:status"] = "tool:status"
    data: ToolStatusData


class ToolCallComplete(CallEvent):
    """The call ended well.

    `result` may be cut on the wire: then `truncated` is true and `result_chars` counts the
    characters of the whole result, which the store keeps; `result_url` is a link to it that
    expires, where the server gives out such links. A file's `url` is a `data:` URL, a web
    address, or a path of this server (`/v1/runs/…/files/…`) where it is too large for a frame;
    its `size` is in bytes then.
    """

    type: Literal["tool_call_complete"] = "tool_call_complete"
    tool_name: Name = ""
    result: Annotated[str, Limit(MAX_TEXT_BYTES, flag="truncated")]
    truncated: bool = False
    result_chars: int = Field(default=0, ge=0)
    duration_ms: int | None = Field(default=None, ge=0)
    files: Annotated[tuple[dict[str, Any], ...], Limit(MAX_FILES_BYTES)] = ()
    embeds: Annotated[tuple[str, ...], Limit(MAX_FILES_BYTES // 2)] = ()
    result_url: str | None = None


class ToolCallError(CallEvent):
    """The call failed, timed out, was refused or cancelled: `code` says which, `error` says why."""

    type: Literal["tool_call_error"] = "tool_call_error"
    tool_name: Name = ""
    error: Line
    code: Name = "tool_failed"
    duration_ms: int | None = Field(default=None, ge=0)


EXTERNAL_ID_PREFIX = "callext_"
"""The beginning of the ids of calls that the client runs; no other call's id has it."""

FORM_ID_PREFIX = "callform_"
"""The beginning of the id of a call that stands for a run's whole answer; the id of the run follows."""


class ToolCallExternal(CallEvent):
    """The model calls a function that the client offered: it is to run it once the run has ended with `tool_calls`.

    `arguments` is JSON text; a long one comes in pieces, each an event of its own with the same
    `tool_call_id`. The next request brings the result, by that id.
    """

    type: Literal["tool_call_external"] = "tool_call_external"
    tool_name: str
    arguments: Pieces = "{}"


class Source(Event):
    """A citation, in Open WebUI's own shape."""

    type: Literal["source"] = "source"
    source: dict[str, Any]
    document: tuple[str, ...] = ()
    metadata: tuple[dict[str, Any], ...] = ()


class InputRequest(Event):
    """The agent waits for the user, `timeout_seconds` long at most.

    The answer is true or false to a `confirmation`, a text to an `input` or a `password`, null
    where the user gave none. `request_id` has at most 640 characters.
    """

    type: Literal["input_request"] = "input_request"
    request_id: RequestId
    kind: Literal["confirmation", "input", "password"]
    title: Line
    message: Text = ""
    placeholder: Line = ""
    tool_call_id: str | None = None
    timeout_seconds: float | None = Field(default=None, gt=0)


class Usage(Event):
    """Tokens, summed over the run's model calls; `cached_tokens` are of the input, `reasoning_tokens` of the output."""

    type: Literal["usage"] = "usage"
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    total_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)


class Done(Event):
    """Terminal: the run is over."""

    type: Literal["done"] = "done"
    finish_reason: FinishReason = "stop"


class Error(Event):
    """Terminal: the run failed; `upstream_code` is the word of the model's endpoint for why, where it gave one."""

    type: Literal["error"] = "error"
    message: Line
    code: Name = "internal_error"
    upstream_code: str = ""


TERMINAL = (Done, Error)

EVENT_TYPES = frozenset(EVENT_CLASSES)
"""The types of the protocol itself: those that stand here."""

# Type checkers and the reference know by themselves what a module takes from others; a list made here would stop them.
globals()["__all__"] = sorted(name for name in globals().keys() - _IMPORTED if not name.startswith("_"))
