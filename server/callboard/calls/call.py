"""Tool calls before they start: as the model wrote them, resolved or rejected. And what all calls of a turn share."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from callboard._redaction import MASK, Redaction
from callboard.calls.approval import Approval
from callboard.calls.client_tool import ClientTool
from callboard.calls.context import Quotas, Services, SourceNumbers
from callboard.calls.limits import Allowance, Limits
from callboard.calls.tool import Tool
from callboard.errors import ToolError
from callboard_protocol import User

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
    `truncated`: the answer ended before the call did.
    `in_text`: it was written in the answer's text, where arguments need not be JSON.
    `untyped`: every argument is a text; the schema says which type it has.
    `words`: arguments that are no JSON may be the one text that the tool takes.
    `broken`: it does not follow its syntax, so it is rejected.
    `syntax`: the name of the syntax that it was read in, "" for a native call.
    `rescued`: it was in the text although the model was not asked to write calls there.
    `asks_first`: it runs without approval only if its tool is `read_only`.
    `thought`: text of the model before the call, if the format shows that to the model again.
    `provider_id`: the endpoint's id for it, "" if it gave none. `details`: see `ToolCallDelta`.
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any] = ""
    truncated: bool = False
    in_text: bool = False
    untyped: bool = False
    words: bool = False
    broken: bool = False
    syntax: str = ""
    rescued: bool = False
    asks_first: bool = False
    thought: str = ""
    provider_id: str = field(default="", compare=False)
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)
    parent_call_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name[:MAX_NAME_CHARS])

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


@dataclass(frozen=True, slots=True)
class CallContext:
    """What all calls of a turn share: the user and the chat, the limits, and who approves calls.

    `allowances` limit the calls of some tools. `spend` counts a call against the user's quota before it runs, and
    raises `ToolLimit` if none is left for today. The runner adds to `begun` the id of each call that starts, and to
    `left_running` the id of each call that was stopped while its tool could not be.
    """

    chat_id: str | None = None
    user: User | None = None
    sources: SourceNumbers = field(default_factory=SourceNumbers)
    agent_id: str = ""
    services: Services | None = None
    approval: Approval = field(default_factory=Approval)
    quotas: Quotas = field(default_factory=Quotas)
    redaction: Redaction = field(default_factory=Redaction)
    left_running: set[str] = field(default_factory=set)
    spend: Spend = spend_nothing
    begun: set[str] = field(default_factory=set)
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
