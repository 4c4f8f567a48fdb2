"""A tool call in each of its states, and the data that all calls of a turn share."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import to_json

from callboard.calls.approval import APPROVED, ASKING, PENDING, Approval
from callboard.calls.context import CallClock, Quotas, Services, SourceNumbers, StatusReport
from callboard.calls.limits import Allowance, Limits
from callboard.calls.tool import ClientTool, Tool, ToolResult
from callboard.errors import ToolError
from callboard.redaction import MASK, Redaction
from callboard.text import cut_note
from callboard_protocol import Event, ToolCallComplete, ToolCallError, ToolCallStart, ToolStatus, ToolStatusData, User
from callboard_protocol.endings import find_ending, format_ending

if TYPE_CHECKING:
    # Not at run time: the file of an agent imports this module, and must not load the parser.
    from callboard_formats.syntax import WrittenCall

MAX_NAME_CHARS = 256
"""The longest name of a tool that is stored, shown and compared; OpenAI's own names have at most 64 characters."""

MAX_STEPS = 200
"""The steps that are kept of one call: the first ones, and the newest."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it. Nothing about it has been checked.

    `id` is unique within the chat; events, the store and the model use it. `name` is cut at `MAX_NAME_CHARS`.
    `arguments` is the model's text, unchanged and "" if there was none; an object only if the caller has no text.
    `parent_call_id` is the call that started the agent that makes this one; empty for the agent's own calls, and for
    calls inside a running tool, whose parent the runner knows.

    The other fields say how the call was read, and are set by the formats:
    `written`: the call as it stood in the answer's text; None for a native call.
    `syntax`: the name of the syntax that it was read in, "" for a native call and a rescued call in a fence.
    `rescued`: it was in the text although the model was not asked to write calls there.
    `asks_first`: it runs without approval only if its tool is `read_only`.
    `needs_approval`: it runs only with approval, because an earlier server has asked for it.
    `asked_fingerprint`: the tool's fingerprint in that server's question; None if the question was not sent.
    `task_id`: the task at another service that an earlier server's call has begun, "" if there is none.
    `is_changed`: the user has changed the arguments.
    `thought`: text of the model before the call, if the format shows that to the model again.
    `provider_id`: the endpoint's id for it, "" if it gave none. `details`: see `ToolCallDelta`.
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any] = ""
    written: WrittenCall | None = None
    syntax: str = ""
    rescued: bool = False
    asks_first: bool = False
    needs_approval: bool = False
    asked_fingerprint: str | None = None
    task_id: str = ""
    is_changed: bool = False
    thought: str = ""
    provider_id: str = field(default="", compare=False)
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)
    parent_call_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name[:MAX_NAME_CHARS])

    @property
    def is_untyped(self) -> bool:
        """Whether every argument was written as a text, and the schema decides which type it has."""
        return self.written is not None and self.written.untyped

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, or as whatever text the model wrote."""
        return self.arguments if isinstance(self.arguments, str) else write_arguments(self.arguments)


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A call that can run: its tool exists and the arguments fit.

    `call` is the call as written. `arguments` are the values for the tool's function. `arguments_text` is shown, stored
    and repeated to the model: the model's own text, or the arguments as JSON if `repairs` changed them. Each of
    `repairs` names one change in a few words.
    """

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    arguments_text: str
    repairs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool, which the model may have written differently."""
        return self.tool.name

    @property
    def is_external(self) -> bool:
        """Whether the client runs it, not this server."""
        return isinstance(self.tool, ClientTool)


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that cannot run, and the error that says why; `tool` is None if no tool has that name."""

    call: ToolCall
    error: ToolError
    tool: Tool | None = None

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool that the model meant, or its own word if there is no such tool."""
        return self.tool.name if self.tool else self.call.name

    @property
    def arguments_text(self) -> str:
        """The arguments as the model wrote them."""
        return self.call.arguments_text


@dataclass
class StartedCall:
    """A call that has started. Times are in seconds since the epoch.

    `steps` are the reports that `follow_call` has read, at most `MAX_STEPS`; calls of a `CallRunner` have none.
    `is_changed`: the user has changed the arguments.
    """

    start: ToolCallStart
    started_at: float = field(default_factory=time.time)
    steps: list[StatusReport] = field(default_factory=list)
    is_changed: bool = False

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.start.tool_call_id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.start.tool_name

    @property
    def place(self) -> tuple[int, int]:
        """The round of the call in its turn, and the call's place in that round, both from 0."""
        return self.start.round_index, self.start.sequence_index

    @cached_property
    def arguments_text(self) -> str:
        """The arguments as JSON text, or the model's own text if that is no JSON object; cached for pages."""
        arguments = self.start.tool_args
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

    @property
    def is_from_text(self) -> bool:
        """Whether the call was read from the model's text, which was not asked to contain calls."""
        return self.start.from_text

    @property
    def progress(self) -> float | None:
        """The last percentage that the call reported, None if it reported none."""
        return next((step.progress for step in reversed(self.steps) if step.progress is not None), None)

    @property
    def last_message(self) -> str:
        """The message of the last step."""
        return self.steps[-1].message if self.steps else ""


@dataclass
class RunningCall(StartedCall):
    """A call that has started and not ended.

    For the runner: `inside` are the ids of the calls whose tools this call is part of; `needs_approval`: its user is
    asked before it runs, or the error that ends it; `is_approved`: its user has agreed; `clock` measures its duration.
    `task_id` is the task that the call follows, according to its events.
    """

    inside: tuple[str, ...] = ()
    needs_approval: bool | ToolError = False
    is_approved: bool = False
    task_id: str = ""
    clock: CallClock = field(default_factory=CallClock, repr=False)

    ended_at: ClassVar[None] = None
    duration_ms: ClassVar[None] = None
    error_code: ClassVar[None] = None
    is_failed: ClassVar[bool] = False
    has_run: ClassVar[bool] = True
    result_text: ClassVar[None] = None
    display_text: ClassVar[str] = ""

    @property
    def status(self) -> str:
        """`waiting` while its user is asked, otherwise `running`."""
        last = self.steps[-1] if self.steps else None
        is_waiting = last is not None and last.status in (PENDING, ASKING) and last.message != APPROVED
        return "waiting" if is_waiting else "running"

    def take_step(self, data: ToolStatusData) -> None:
        """Add a step of the call, and take the arguments that the user has changed."""
        if len(self.steps) == MAX_STEPS:
            # The newest report says what the call does now.
            self.steps.pop()
        self.steps.append(StatusReport(data.status, data.message, data.progress))
        self.task_id = data.task_id or self.task_id
        if data.arguments is not None:
            self.is_changed = True
            self.start = self.start.model_copy(update={"tool_args": data.arguments})
            self.__dict__.pop("arguments_text", None)

    def end(self, end: ToolCallComplete | ToolCallError, outcome: ToolResult | ToolError | None = None) -> EndedCall:
        """Return the call as it has ended now."""
        began = (self.start, self.started_at, self.steps, self.is_changed)
        return EndedCall(*began, end=end, ended_at=time.time(), outcome=outcome)


@dataclass(kw_only=True)
class EndedCall(StartedCall):
    """A call that has ended. `outcome` is its result or error; None if only the events of the run are known."""

    end: ToolCallComplete | ToolCallError
    ended_at: float
    outcome: ToolResult | ToolError | None = None

    @property
    def error_code(self) -> str | None:
        """The code of the error, None if there is a result."""
        return self.end.code if isinstance(self.end, ToolCallError) else None

    @property
    def duration_ms(self) -> int | None:
        """How long the tool ran, None if it did not run."""
        return self.end.duration_ms

    @property
    def is_failed(self) -> bool:
        """Whether the call counts as an error of its tool; a declined call does not."""
        return self.error_code is not None and find_ending(self.error_code).is_failure

    @property
    def has_run(self) -> bool:
        """Whether the tool was started."""
        return self.error_code is None or find_ending(self.error_code).has_run

    @property
    def status(self) -> str:
        """The name of its state in stores and queries, such as `complete`."""
        return "complete" if self.error_code is None else find_ending(self.error_code).state

    @property
    def result_text(self) -> str:
        """What the model reads: the result, with a note if it was cut here, or the error."""
        if isinstance(self.end, ToolCallError):
            return format_error(self.end.error)
        return cut_note(self.end.result, self.end.result_chars if self.end.truncated else 0)

    @property
    def display_text(self) -> str:
        """What a person reads: the result, or why there is none."""
        return self.result_text if self.error_code is None else format_ending(self.error_code, self.result_text)

    @property
    def files(self) -> Sequence[Mapping[str, Any]]:
        """The files that the call gave, in Open WebUI's form."""
        return self.end.files if isinstance(self.end, ToolCallComplete) else ()

    @property
    def embeds(self) -> Sequence[str]:
        """The HTML pages and URLs that the call gave."""
        return self.end.embeds if isinstance(self.end, ToolCallComplete) else ()


def format_error(error: str) -> str:
    """Return the text that the model reads instead of a result."""
    return error if error.startswith("Error:") else f"Error: {error}"


def follow_call(calls: dict[str, RunningCall | EndedCall], event: Event) -> RunningCall | EndedCall | None:
    """Update a run's calls, by their ids, with one of its events; return the call that has changed.

    Returns None for an event that changes no call.
    """
    if isinstance(event, ToolCallStart):
        calls[event.tool_call_id] = RunningCall(event)
        return calls[event.tool_call_id]
    if not isinstance(event, ToolStatus | ToolCallComplete | ToolCallError):
        return None
    call = calls.get(event.tool_call_id)
    if not isinstance(call, RunningCall):
        return None
    if isinstance(event, ToolStatus):
        call.take_step(event.data)
        return call
    calls[event.tool_call_id] = call.end(event)
    return calls[event.tool_call_id]


Spend = Callable[[], Awaitable[None]]
"""Counts a call against the user's quota before it runs; raises `ToolLimit` if none is left for today."""


async def spend_nothing() -> None:
    """Do nothing: the default of users without a quota."""


async def store_nothing() -> None:
    """Do nothing: the default without a run."""


@dataclass(frozen=True)
class CallContext:
    """What all calls of a turn share: the user and the chat, the limits, and who approves calls.

    `sources` numbers the sources of the turn. `services` are for the tools that come with the server. `redaction` has
    the secrets that are removed from events, rows, logs and requests to models; tools add to it. `allowances` limit the
    calls of some tools. The runner adds to `begun` the id of each call that starts, and to `left_running` the id of
    each call that was stopped while its tool could not be. `is_left` says whether another server continues the calls.
    `wait_until_stored` returns when all recorded events are stored, and raises `RunLost` if another server has the run.
    """

    chat_id: str | None = None
    user: User | None = None
    sources: SourceNumbers = field(default_factory=SourceNumbers, repr=False)
    agent_id: str = ""
    services: Services | None = field(default=None, repr=False)
    approval: Approval = field(default_factory=Approval)
    quotas: Quotas = field(default_factory=Quotas, repr=False)
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    left_running: set[str] = field(default_factory=set, repr=False)
    spend: Spend = spend_nothing
    begun: set[str] = field(default_factory=set, repr=False)
    limits: Limits = field(default_factory=Limits)
    allowances: Sequence[Allowance] = ()
    is_left: Callable[[], bool] = field(default=lambda: False, repr=False)
    wait_until_stored: Callable[[], Awaitable[None]] = field(default=store_nothing, repr=False)


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON text."""
    return to_json(dict(arguments), inf_nan_mode="null", serialize_unknown=True).decode()


def show_arguments(call: ResolvedCall | RejectedCall) -> str:
    """Return the call's `arguments_text` with the values of secret arguments masked."""
    if call.tool is None or not call.tool.secret_arguments:
        return call.arguments_text
    read = call.arguments if isinstance(call, ResolvedCall) else parse_arguments(call.arguments_text)
    return write_arguments(call.tool.without_secrets(read)) if isinstance(read, Mapping) else MASK


def read_object(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as an object.

    Text that is not a JSON object becomes `{"arguments": value}`, with its JSON value or the text itself.
    """
    read = parse_arguments(arguments)
    return read if isinstance(read, Mapping) else {"arguments": read}


def parse_arguments(arguments: str | Mapping[str, Any]) -> Any:
    """Return the JSON value of arguments; text that is not JSON is returned unchanged."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


REPAIRED = "repaired"
"""The status of a call that was repaired; its message says how it differs from the model's text."""

MAX_WRITTEN_CHARS = 2000
"""The most that this status quotes of the model's own text."""


def describe_repairs(call: ResolvedCall) -> str:
    """Return the message of `REPAIRED`: the repairs of a call, and the model's text."""
    written = f"{call.call.name}({call.call.arguments_text})"
    is_long = len(written) > MAX_WRITTEN_CHARS
    return f"{'; '.join(call.repairs)}; written as {written[:MAX_WRITTEN_CHARS]}{'…' if is_long else ''}"


MAX_LABEL_CHARS = 60
"""The longest argument in a label: it fits beside a tool's name on a phone."""


def label_call(title: str, arguments: str | Mapping[str, Any]) -> str:
    """Return the title and the first argument that is a number or one line of text: "get_weather · Oslo"."""
    read = parse_arguments(arguments)
    values = read.values() if isinstance(read, Mapping) else ()
    known = (value for value in values if isinstance(value, str | int | float) and not isinstance(value, bool))
    texts = (str(value).strip() for value in known)
    shown = next((text for text in texts if text and text.isprintable() and MASK not in text), "")
    if len(shown) > MAX_LABEL_CHARS:
        shown = f"{shown[: MAX_LABEL_CHARS - 1].rstrip()}…"
    return f"{title} · {shown}" if shown else title
