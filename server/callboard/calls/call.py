"""Tool calls before they start: as the model wrote them, resolved or rejected. And what all calls of a turn share."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from callboard.calls.approval import Approval
from callboard.calls.client_tool import ClientTool
from callboard.calls.context import Quotas, Services, SourceNumbers
from callboard.calls.limits import Allowance, Limits
from callboard.calls.tool import Tool
from callboard.errors import ToolError
from callboard.redaction import MASK, Redaction
from callboard_protocol import User

if TYPE_CHECKING:
    # Not at run time: the file of an agent imports this module, and must not load the parser.
    from callboard_formats.syntax import WrittenCall

MAX_NAME_CHARS = 256
"""The longest name of a tool that is stored, shown and compared; OpenAI's own names have at most 64 characters."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it. Nothing about it has been checked.

    `id` is unique within the chat; events, the store and the model use it. `name` is cut at `MAX_NAME_CHARS`.
    `arguments` is the model's text, unchanged and "" if there was none; an object only if the caller has no text.
    `parent_call_id` is the call that started the agent that makes this one; empty for the agent's own calls, and for
    calls inside a running tool, whose parent the runner knows.

    The other fields say how the call was read, and are set by the formats:
    `written`: the call as it stood in the answer's text; None for a native call.
    `syntax`: the name of the syntax that it was read in, "" for a native call.
    `rescued`: it was in the text although the model was not asked to write calls there.
    `asks_first`: it runs without approval only if its tool is `read_only`.
    `needs_approval`: it runs only with approval, because an earlier server has asked for it.
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


Spend = Callable[[], Awaitable[None]]
"""Counts a call against the user's quota before it runs; raises `ToolLimit` if none is left for today."""


async def spend_nothing() -> None:
    """Do nothing: the default of users without a quota."""


@dataclass(frozen=True)
class CallContext:
    """What all calls of a turn share: the user and the chat, the limits, and who approves calls.

    `sources` numbers the sources of the turn. `services` are for the tools that come with the server. `redaction` has
    the secrets that are removed from events, rows, logs and requests to models; tools add to it. `allowances` limit the
    calls of some tools. `spend` counts a call against the user's quota before it runs, and raises `ToolLimit` if none
    is left for today. The runner adds to `begun` the id of each call that starts, and to `left_running` the id of each
    call that was stopped while its tool could not be.
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


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return the arguments as JSON text."""
    return to_json(dict(arguments), inf_nan_mode="null", serialize_unknown=True).decode()


def show_arguments(call: ResolvedCall | RejectedCall) -> str:
    """Return the call's `arguments_text` with the values of secret arguments masked."""
    if call.tool is None or not call.tool.secret_arguments:
        return call.arguments_text
    try:
        read = call.arguments if isinstance(call, ResolvedCall) else json.loads(call.arguments_text)
    except (ValueError, RecursionError):
        return MASK
    return write_arguments(call.tool.without_secrets(read)) if isinstance(read, Mapping) else MASK


def read_object(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as an object; text that is none becomes its only member."""
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments or "{}")
    except ValueError:
        read = arguments
    return read if isinstance(read, dict) else {"arguments": read}


REPAIRED = "repaired"
"""The status that says how a call differs from what the model wrote."""

MAX_WRITTEN_CHARS = 2000
"""The most that this status quotes of the model's own text."""


def describe_repairs(call: ResolvedCall) -> str:
    """Return what was repaired of a call and how the model wrote the call."""
    written = f"{call.call.name}({MASK if call.tool.secret_arguments else call.call.arguments_text})"
    is_long = len(written) > MAX_WRITTEN_CHARS
    return f"{'; '.join(call.repairs)}; written as {written[:MAX_WRITTEN_CHARS]}{'…' if is_long else ''}"


MAX_LABEL_CHARS = 60
"""The longest argument in a label: it fits beside a tool's name on a phone."""


def label_call(title: str, arguments: str | Mapping[str, Any]) -> str:
    """Return the title and the first argument that is a number or one line of text: "get_weather · Oslo"."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return title
    values = arguments.values() if isinstance(arguments, Mapping) else ()
    texts = (str(value).strip() for value in values if isinstance(value, str | int | float) and value is not True)
    shown = next((text for text in texts if text and text.isprintable() and MASK not in text and text != "False"), "")
    if len(shown) > MAX_LABEL_CHARS:
        shown = f"{shown[: MAX_LABEL_CHARS - 1].rstrip()}…"
    return f"{title} · {shown}" if shown else title
