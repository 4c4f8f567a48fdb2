"""The events of a run: an immutable class for each `type`.

The guarantees of a stream of events are in docs/reference/events.md; `scripts/reference.py` writes
docs/reference/events.md from this file.

A new event needs only a subclass of `Event` with a new `type`: it is then decoded by this type, exported from
`callboard_protocol` if it is declared here, and sent to listeners like any other.
"""

from collections.abc import Hashable
from functools import partial
from operator import is_, not_
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints
from typing_extensions import TypedDict

from callboard_protocol.wire import (
    MAX_CHOICES_BYTES,
    MAX_FILES_BYTES,
    MAX_FORM_BYTES,
    MAX_LINE_BYTES,
    MAX_TEXT_BYTES,
    MAX_TOOL_REQUEST_BYTES,
    Items,
    Limit,
    Line,
    Name,
    Pieces,
    RequestId,
    Text,
    Wire,
)

is_none = partial(is_, None)

_IMPORTED = frozenset(globals())

PROTOCOL_VERSION = 1

FinishReason = Literal["stop", "length", "max_turns", "tool_calls", "content_filter", "refusal", "cancelled"]

EVENT_CLASSES: dict[str, type["Event"]] = {}
"""The class of each known `type`, in the order of their definitions."""


class Event(Wire):
    """The base of all events. The definition of a subclass with a default for `type` registers it for this type.

    A field's `Limit` is its maximum size on the wire; without one it has the limit of `Text`. Raises `TypeError` if
    another class has the same `type`.
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
    """The base of events with a piece of a longer text; they may be joined and split anywhere."""

    text_field: ClassVar[str] = "content"

    @property
    def text(self) -> str:
        """The piece of text."""
        piece: str = getattr(self, self.text_field)
        return piece

    @property
    def stream(self) -> Hashable:
        """A value that is equal for all pieces of the same text."""
        return self.type

    def with_text(self, text: str) -> Self:
        """Return a copy of the event with another piece."""
        return self.model_copy(update={self.text_field: text})


class CallEvent(Event):
    """The base of events about a tool call that has started."""

    tool_call_id: str


class RunStart(Event):
    """The first event of every run."""

    type: Literal["run_start"] = "run_start"
    run_id: str
    agent: str
    protocol: int = PROTOCOL_VERSION


class Status(Event):
    """One line about the run as a whole."""

    type: Literal["status"] = "status"
    content: Line
    done: bool = False


PlanState = Literal["pending", "in_progress", "completed", "cancelled"]


class PlanStep(TypedDict):
    """A step of a `Plan`."""

    id: str
    content: str
    state: PlanState


class Plan(Event):
    """The steps of the agent's work; replaces the plan of an earlier event of the run. A rewind keeps it.

    A step is an object with `id`, `content` and `state`: `pending`, `in_progress`, `completed` or `cancelled`. Its `id`
    is unique in the plan.
    """

    type: Literal["plan"] = "plan"
    steps: Annotated[Items[PlanStep], Limit(MAX_TEXT_BYTES)]

    @property
    def summary(self) -> str:
        """The number of completed steps and the current step: "Plan: 2 of 5: Write the report"."""
        done = sum(step["state"] == "completed" for step in self.steps)
        current = [
            step["content"] for state in ("in_progress", "pending") for step in self.steps if step["state"] == state
        ]
        return ": ".join(("Plan", f"{done} of {len(self.steps)}", *current[:1]))


class Message(TextEvent):
    """Text to append to the answer; `refusal` is true if the model refuses to answer with it."""

    type: Literal["message"] = "message"
    content: Pieces
    refusal: bool = Field(default=False, exclude_if=not_)

    @property
    def stream(self) -> Hashable:
        """A value that is equal for all pieces of the same text."""
        return self.type, self.refusal


class Reasoning(TextEvent):
    """Text to append to the reasoning."""

    type: Literal["reasoning"] = "reasoning"
    content: Pieces


class Rewind(Event):
    """Withdraws the text and reasoning since the last call's start or end, `user_message`, or the start of the run.

    Calls whose arguments are incomplete, and which have not started, are withdrawn too. Other calls, sources and
    statuses stay.
    """

    type: Literal["rewind"] = "rewind"


class ToolCallArgsDelta(TextEvent):
    """A piece of a call's arguments while the model writes them.

    All pieces come before `tool_call_start`. The last ones are not sent if the call starts at once, because its start
    has all arguments.
    """

    type: Literal["tool_call_args_delta"] = "tool_call_args_delta"
    tool_call_id: str
    tool_name: Name = ""
    delta: Pieces

    text_field: ClassVar[str] = "delta"

    @property
    def stream(self) -> Hashable:
        """A value that is equal for all pieces of the same call's arguments."""
        return self.type, self.tool_call_id


class ToolCallStart(CallEvent):
    """A tool call begins.

    `tool_args` is the tool's arguments as a JSON object, or the model's text if it is not a JSON object. `round_index`
    counts the rounds of the turn, and `sequence_index` the calls of the round, both from 0; the recorder sets them.
    `stoppable` is false for a tool that a stop may not end: a plain function in a thread, or a tool that another server
    runs. `label` names the call for people: the tool's title, and the argument that distinguishes this call; empty if
    it is only the tool's name. `from_text` is true if the call was read from the model's text although it was not asked
    to write calls there. `asks_first` is true if the tool does not run before the approval of its user is recorded.
    `show` is the form of the result for people, if the tool declares one: `table`, `markdown`, `code`, `code:` and a
    language, or `text`.

    `parent_call_id` is empty for the agent's own calls. For a call of another agent it is the call that started this
    agent: a team member, a sub-agent, an agent in a tool, or the target of a handoff. In the next turn the model
    sees only the parent.
    """

    type: Literal["tool_call_start"] = "tool_call_start"
    tool_call_id: str = ""
    tool_name: Name
    tool_args: Annotated[dict[str, Any] | str, Limit(MAX_TEXT_BYTES, "as_text")] = Field(default_factory=dict)
    round_index: int = Field(default=0, ge=0)
    sequence_index: int = Field(default=0, ge=0)
    stoppable: bool = True
    label: Annotated[str, Limit(256)] = Field(default="", exclude_if=not_)
    from_text: bool = Field(default=False, exclude_if=not_)
    asks_first: bool = Field(default=False, exclude_if=not_)
    show: Annotated[str, Limit(32)] = Field(default="", exclude_if=not_)
    parent_call_id: str = Field(default="", exclude_if=not_)


WAITING_STATUSES = ("pending", "asking")
"""The statuses of a call while its user is asked: whether it may run, or what its running tool wants to know."""

FROM_TEXT_STATUS = "from_text"
"""The first status of a call whose start has `from_text`: clients show it as a step of the call."""

ELSEWHERE_STATUS = "elsewhere"
"""The first status of a call whose tool the agent's own server runs: limits and `CALLBOARD_CONFIRM_TOOLS` do not apply.
"""


class ToolStatusData(Wire):
    """A step of a running call; `progress` is a percentage from 0 to 100, or None if it is unknown.

    `arguments` are those with which the call will run, if the user or code of the agent has changed them. `task_id` is
    the id of the work of the call at another service, by which a server that continues the run follows it.
    """

    status: Annotated[str, Limit(64)]
    message: Line = ""
    progress: float | None = Field(default=None, ge=0, le=100)
    arguments: Annotated[dict[str, Any] | str | None, Limit(MAX_TEXT_BYTES, "as_text")] = Field(
        default=None, exclude_if=is_none
    )
    task_id: Annotated[str, Limit(MAX_LINE_BYTES)] = Field(default="", exclude_if=not_)


class ToolStatus(CallEvent):
    """The progress of a call, between its start and its end."""

    type: Literal["tool:status"] = "tool:status"
    data: ToolStatusData


class ToolCallComplete(CallEvent):
    """A call has ended with a result.

    If `truncated` is true, `result` is the beginning of a longer result with `result_chars` characters, which the
    database has; `result_url` is a link to it that expires, if the server makes such links. A file's `url` is a `data:`
    URL, a web address, or, if the file is too large for a frame, a path of this server (`/v1/runs/…/files/…`); then its
    `size` is in bytes.
    """

    type: Literal["tool_call_complete"] = "tool_call_complete"
    tool_name: Name = ""
    result: Annotated[str, Limit(MAX_TEXT_BYTES, flag="truncated")]
    truncated: bool = False
    result_chars: int = Field(default=0, ge=0)
    duration_ms: int | None = Field(default=None, ge=0)
    files: Annotated[Items[dict[str, Any]], Limit(MAX_FILES_BYTES)] = ()
    embeds: Annotated[Items[str], Limit(MAX_FILES_BYTES // 2)] = ()
    result_url: str | None = None


class ToolCallError(CallEvent):
    """A call has failed, timed out, or was refused or cancelled: `code` says which of these, `error` the reason."""

    type: Literal["tool_call_error"] = "tool_call_error"
    tool_name: Name = ""
    error: Line
    code: Name = "tool_failed"
    duration_ms: int | None = Field(default=None, ge=0)


APPROVAL_PREFIX = "approve:"
"""The prefix of the ids of questions for the approval of a call; the rest is the id of the call."""

EXTERNAL_ID_PREFIX = "call_x_"
"""Prefix of the ids of calls that the client runs; no other id has it.

Agno replaces every id that does not begin with `call_` or has more than 40 characters. The server could then not find
the call of a result.
"""

FORM_ID_PREFIX = "call_f_"
"""Prefix of the id of a call that represents a run's whole answer; the id of the run follows."""


class ToolCallExternal(CallEvent):
    """The model calls a function of the client, which runs it when the run has ended with `tool_calls`.

    `arguments` is JSON text; a long text is sent in pieces, in several events with the same `tool_call_id`. The
    client's next request contains the result, with this id.
    """

    type: Literal["tool_call_external"] = "tool_call_external"
    tool_name: str
    arguments: Pieces = "{}"


class Source(Event):
    """A citation, in Open WebUI's format."""

    type: Literal["source"] = "source"
    source: dict[str, Any]
    document: Items[str] = ()
    metadata: Items[dict[str, Any]] = ()


class InputRequest(Event):
    """The agent asks the user a question, and waits for at most `timeout_seconds`.

    An approval with `can_wait` may wait longer, see `parked`. A client that cannot show it now answers null.

    The answer to a `confirmation` is true or false, and to an `input` or a `password` a text. The answer to a `form` is
    an object, or false if the user declines to fill it in. Every answer is null if the user gave none. `request_id` has
    at most 640 characters.

    `schema` is the form's JSON schema: a flat object whose fields are texts, numbers, booleans, or choices from a
    list, as in MCP's elicitation. A text is also accepted for a number, a boolean or a choice. `choices` are the
    answers to an `input`, which may also be given by number; with `other`, any other text is an answer too. If an
    answer does not fit, the question is asked again as a new question, whose message begins with the reason.

    A `confirmation` with a `url` (http or https) asks the user to open it; true says that they have. `arguments` are
    those of the call that a `confirmation` would allow, the same as in `message`; a text if they are too large. With
    `remember`, the text `always` is an answer too: the calls of this tool in this chat that ask now or later then run.

    The object `{"words": …}` refuses the call that a `confirmation` would allow, and the model reads the user's words.

    If such a `confirmation` has a `schema`, the user may change these arguments, whose values are the defaults of the
    form. The answer may then be an object, which allows the call: `arguments` has the values of all fields of the form,
    changed or not. A field without a value is left out of the call. With `remember`, `"always": true` in the object
    allows the tool always. The answers true and `always` allow the call as the model made it.

    `tool_fingerprint` is a hash of the tool that such a `confirmation` is about. If the tool has another one when the
    answer arrives, because its server, description or schema has changed, the answer does not allow the call.
    """

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True, validate_by_alias=True)

    type: Literal["input_request"] = "input_request"
    request_id: RequestId
    kind: Literal["confirmation", "input", "password", "form"]
    title: Line
    message: Text = ""
    placeholder: Line = ""
    # Not named `schema`, which is a method of pydantic's models.
    form: Annotated[dict[str, Any], Limit(MAX_FORM_BYTES)] = Field(
        default_factory=dict, alias="schema", exclude_if=not_
    )
    choices: Annotated[Items[str], Limit(MAX_CHOICES_BYTES)] = Field(default=(), exclude_if=not_)
    other: bool = Field(default=False, exclude_if=not_)
    url: Annotated[str, Limit(MAX_LINE_BYTES), StringConstraints(pattern=r"^(https?://[^\s]+)?$")] = Field(
        default="", exclude_if=not_
    )
    arguments: Annotated[dict[str, Any] | str | None, Limit(MAX_TEXT_BYTES, "as_text")] = Field(
        default=None, exclude_if=is_none
    )
    remember: bool = Field(default=False, exclude_if=not_)
    can_wait: bool = Field(default=False, exclude_if=not_)
    tool_fingerprint: Name = Field(default="", exclude_if=not_)
    tool_call_id: str | None = None
    timeout_seconds: float | None = Field(default=None, gt=0)


class ToolRequest(CallEvent):
    """A running call needs a tool of Open WebUI, which the client runs for its user; see `RunRequest.openwebui_tools`.

    The client sends a `ToolAnswer` to the same route as answers to questions, within `timeout_seconds`. A server that
    takes over the run may send the request again with the same `request_id`: the client runs the tool once.
    """

    type: Literal["tool_request"] = "tool_request"
    request_id: RequestId
    name: Name
    arguments: Annotated[dict[str, Any], Limit(MAX_TOOL_REQUEST_BYTES)] = Field(default_factory=dict)
    timeout_seconds: float | None = Field(default=None, gt=0)


class Parked(Event):
    """The run waits for approvals that were not given in time. No server runs it while it waits.

    `tool_call_ids` are its open calls; each waits for the answer to an `input_request` that was sent before. The
    connection ends after this event. After an answer a server continues the run, and the next events follow.
    """

    type: Literal["parked"] = "parked"
    tool_call_ids: Items[str]


class UserMessage(Event):
    """The model reads a message that the user has sent to the run, see `RunMessage`."""

    type: Literal["user_message"] = "user_message"
    message_id: Name
    content: Text


class UnreadMessage(Event):
    """The run ends, and its model has not read this message: send it as the next turn."""

    type: Literal["unread_message"] = "unread_message"
    message_id: Name
    content: Text


class Usage(Event):
    """Tokens of the run's requests to models; the input includes `cached_tokens`, the output `reasoning_tokens`.

    If a run went on at another server, or after an approval that had waited, only the requests since then are counted.
    """

    type: Literal["usage"] = "usage"
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    total_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)


class Done(Event):
    """The last event of a run that has ended."""

    type: Literal["done"] = "done"
    finish_reason: FinishReason = "stop"


class Error(Event):
    """The last event of a run that has failed; `upstream_code` is the error code of the model's endpoint, if any."""

    type: Literal["error"] = "error"
    message: Line
    code: Name = "internal_error"
    upstream_code: str = ""


TERMINAL = (Done, Error)

EVENT_TYPES = frozenset(EVENT_CLASSES)
"""The types of the protocol itself, which are declared here."""

# Set through `globals()`, because type checkers and the reference would read a literal `__all__` as the complete list.
# Constants are for the server.
globals()["__all__"] = sorted(name for name in globals().keys() - _IMPORTED if name[0] != "_" and not name.isupper())
