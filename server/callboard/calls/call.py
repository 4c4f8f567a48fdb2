"""A tool call in each state of its life, and the context of a turn's calls."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from callboard._redaction import MASK, Redaction
from callboard.calls.approval import Approval
from callboard.calls.client_tool import ClientTool
from callboard.calls.context import Quotas, Services, SourceNumbers
from callboard.calls.result import ToolResult
from callboard.calls.tool import Tool
from callboard.errors import ToolError
from callboard_protocol import User


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a model wrote it: its `arguments` to the letter, or as an object where no text of it is to be had.

    `id` is what the store, the events and the model have. `is_rescued`: it stood in the answer's text although
    nobody asked for calls there; `is_doubtful`: so it runs unasked only where its tool reads and does no more.
    `parent_call_id` is the call that started the agent that makes this one, empty for the calls of the agent itself and
    those made inside a running tool, whose parent is known.
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any] = ""
    is_rescued: bool = False
    is_doubtful: bool = False
    parent_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A call whose tool there is, and whose arguments fit it: they are as the tool's function takes them.

    `call` has the tool's name, and the arguments as they run where they were repaired: `repairs` say what is
    not as the model wrote it, and `written` is the call to the letter.
    """

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    repairs: tuple[str, ...] = ()
    written: str = ""

    @property
    def is_external(self) -> bool:
        """Return whether the client is to run it."""
        return isinstance(self.tool, ClientTool)


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that is not run, and why; `tool` is None where there is none of that name."""

    call: ToolCall
    error: ToolError
    tool: Tool | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The end of a call: a result or an error, how long it ran (None where it never did), what the model is told."""

    ended: ToolResult | ToolError
    duration_ms: int | None = None
    told: str = ""


@dataclass(slots=True)
class CallRecord:
    """The facts about a call while it is open; `inside` are the ids of the calls whose tools it is part of."""

    call: ToolCall
    inside: tuple[str, ...] = ()
    is_approved: bool = False
    started_at_seconds: float = field(default_factory=time.monotonic)

    @property
    def duration_ms(self) -> int:
        """The time that it has run."""
        return round((time.monotonic() - self.started_at_seconds) * 1000)


Spend = Callable[[], Awaitable[None]]
"""Counts a call of a user's that is about to run; raises `ToolLimit` where none is left for today."""


async def spend_nothing() -> None:
    """Count nothing: for users without a bound."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """The one whom the tools of a turn serve, as their `ToolContext` says it, and who is asked before they run.

    `spend` counts a call of the user's before it runs, and raises `ToolLimit` where none is left for today.
    `left_running` receives the ids of calls that were stopped and whose tools went on all the same, `begun` those of
    all calls that have begun.
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


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as JSON text."""
    return to_json(dict(arguments), inf_nan_mode="null", serialize_unknown=True).decode()


def show_arguments(call: ResolvedCall | RejectedCall) -> str | Mapping[str, Any]:
    """Return the arguments as the model wrote them, but for those whose values are secret."""
    written = call.call.arguments
    tool = call.tool
    if tool is None or not tool.secret_arguments:
        return written
    read: Any = written
    try:
        if isinstance(call, ResolvedCall):
            read = call.arguments
        elif isinstance(written, str):
            read = json.loads(written)
    except (ValueError, RecursionError):
        return MASK
    return write_arguments(tool.without_secrets(read)) if isinstance(read, Mapping) else MASK


MAX_LABEL_CHARS = 60
"""The characters of an argument in a label: what fits beside a tool's name on a phone."""


def label_call(title: str, arguments: str | Mapping[str, Any]) -> str:
    """Return the title with the first argument that is a text in one line or a number: "get_weather · Oslo"."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return title
    values = arguments.values() if isinstance(arguments, Mapping) else ()
    texts = (str(value).strip() for value in values if isinstance(value, str | int | float) and value is not True)
    told = next((text for text in texts if text and text.isprintable() and MASK not in text and text != "False"), "")
    if len(told) > MAX_LABEL_CHARS:
        told = f"{told[: MAX_LABEL_CHARS - 1].rstrip()}…"
    return f"{title} · {told}" if told else title
