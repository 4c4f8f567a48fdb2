"""Every event a run may send, one frozen class each, told apart by `type`.

The wire types know neither server nor pipe: both sides import them, they import
pydantic alone. What the fields mean and what a stream of them promises is in
ARCHITECTURE.md, "The protocol"; docs/reference/events.md is written from this file.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

PROTOCOL_VERSION = 1

FinishReason = Literal["stop", "length", "max_turns", "cancelled"]


class Wire(BaseModel):
    """What all wire types share: immutable, and tolerant of fields that a newer peer adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RunStart(Wire):
    """Always the first event."""

    type: Literal["run_start"] = "run_start"
    run_id: str
    agent: str
    protocol: int = PROTOCOL_VERSION


class Status(Wire):
    """One line about the run as a whole."""

    type: Literal["status"] = "status"
    content: str
    done: bool = False


class Message(Wire):
    """Answer text, to be appended."""

    type: Literal["message"] = "message"
    content: str


class Reasoning(Wire):
    """Reasoning text, to be appended to the reasoning."""

    type: Literal["reasoning"] = "reasoning"
    content: str


class Rewind(Wire):
    """What was said since the last tool call event, or since the start, is taken back.

    That is all text and reasoning since the last start or end of a call, and calls whose arguments
    were being written and that have not started. Calls, sources and statuses stay as they are.
    """

    type: Literal["rewind"] = "rewind"


class ToolCallArgsDelta(Wire):
    """A piece of the arguments while the model still writes them; may precede `tool_call_start`."""

    type: Literal["tool_call_args_delta"] = "tool_call_args_delta"
    tool_call_id: str
    tool_name: str = ""
    delta: str


class ToolCallStart(Wire):
    """The call begins.

    `tool_args` is the JSON object that the tool is given, or the text as the model wrote it
    where that is not a JSON object. `round_index` counts the turn's sequential rounds and
    `sequence_index` the calls within one, both from 0; the recorder fills them in.
    """

    type: Literal["tool_call_start"] = "tool_call_start"
    tool_call_id: str = ""
    tool_name: str
    tool_args: dict[str, Any] | str = Field(default_factory=dict)
    round_index: int = Field(default=0, ge=0)
    sequence_index: int = Field(default=0, ge=0)


FROM_TEXT_STATUS = "from_text"
"""The status of a call that was read from the model's text, where nobody asked for calls."""


class ToolStatusData(Wire):
    """One step of a running call: `progress` is a percentage from 0 to 100, or None where it is not known."""

    status: str
    message: str = ""
    progress: float | None = Field(default=None, ge=0, le=100)


class ToolStatus(Wire):
    """The progress of a call; only between its start and its end."""

    type: Literal["tool:status"] = "tool:status"
    tool_call_id: str
    data: ToolStatusData


class ToolCallComplete(Wire):
    """The call ended well.

    `result` may be cut on the wire: then `truncated` is true and `result_chars` counts the
    characters of the whole result, which the store keeps; `result_url` is a link to it that
    expires, where the server gives out such links. A file's `url` is a `data:` URL, a web
    address, or a path of this server (`/v1/runs/…/files/…`) where it is too large for a frame.
    """

    type: Literal["tool_call_complete"] = "tool_call_complete"
    tool_call_id: str
    tool_name: str = ""
    result: str
    truncated: bool = False
    result_chars: int = Field(default=0, ge=0)
    duration_ms: int | None = Field(default=None, ge=0)
    files: tuple[dict[str, Any], ...] = ()
    embeds: tuple[str, ...] = ()
    result_url: str | None = None


class ToolCallError(Wire):
    """The call failed, timed out, was refused or cancelled: `code` says which, `error` says why."""

    type: Literal["tool_call_error"] = "tool_call_error"
    tool_call_id: str
    tool_name: str = ""
    error: str
    code: str = "tool_failed"
    duration_ms: int | None = Field(default=None, ge=0)


class Source(Wire):
    """A citation, in Open WebUI's own shape."""

    type: Literal["source"] = "source"
    source: dict[str, Any]
    document: tuple[str, ...] = ()
    metadata: tuple[dict[str, Any], ...] = ()


class InputRequest(Wire):
    """The agent waits for the user, `timeout_seconds` long at most.

    The answer is true or false to a `confirmation`, a text to an `input` or a `password`, null
    where the user gave none.
    """

    type: Literal["input_request"] = "input_request"
    request_id: str
    kind: Literal["confirmation", "input", "password"]
    title: str
    message: str = ""
    placeholder: str = ""
    tool_call_id: str | None = None
    timeout_seconds: float | None = Field(default=None, gt=0)


class Usage(Wire):
    """Tokens, summed over the run's model calls."""

    type: Literal["usage"] = "usage"
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    total_tokens: int = Field(default=0, ge=0)


class Done(Wire):
    """Terminal: the run is over."""

    type: Literal["done"] = "done"
    finish_reason: FinishReason = "stop"


class Error(Wire):
    """Terminal: the run failed."""

    type: Literal["error"] = "error"
    message: str
    code: str = "internal_error"


Event = (
    RunStart
    | Status
    | Message
    | Reasoning
    | Rewind
    | ToolCallArgsDelta
    | ToolCallStart
    | ToolStatus
    | ToolCallComplete
    | ToolCallError
    | Source
    | InputRequest
    | Usage
    | Done
    | Error
)
TERMINAL = (Done, Error)

event_adapter: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
EVENT_TYPES = frozenset(cls.model_fields["type"].default for cls in Event.__args__)
