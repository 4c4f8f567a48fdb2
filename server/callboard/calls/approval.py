"""Approval: the user is asked before a call runs that needs it; what cannot be asked about does not run."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import structlog
from pydantic_core import from_json, to_json

from callboard._settings import TextCalls
from callboard.calls.tool import Tool
from callboard.errors import ToolDenied, ToolNotAnswered, ToolNotAsked
from callboard_protocol import InputRequest

AnswerTo = Callable[[InputRequest], Awaitable[Any]]
"""Waits for the user's answer to a request that has been, or is about to be, yielded; None where none comes."""

INDENT = "    "
"""Stands before each line of a value of several lines, so that no line of a value can pass for an argument's."""

MAX_SHOWN_CHARS = 8_000
"""The most that arguments to be approved may take: nobody would read more; far below what a frame holds."""

FROM_TEXT = "This call was read from the model's text, not called natively: the model may only be quoting it."
"""The reason why the user is asked about a call that would not ask else."""

PENDING = "pending"
WAITING = "waiting for approval"
"""The status of a call while its user is asked, and its words."""

APPROVED = "approved"
"""Its words from then on: written before its tool runs, so that whoever goes on with the run does not ask again."""

DO_NOT_RETRY = "Do not try again: tell the user what was not done."
REFUSED = "Not run: the user refused it. Do not try again; ask what they would like instead."
NOT_ASKED = (
    "Not run: nobody could be asked here, so nobody refused it. A question needs a chat that its user has open. "
    f"{DO_NOT_RETRY}"
)
NOT_ANSWERED = (
    "Not run: no answer came in time, so nobody refused it. Do not try again now: tell the user what was not done, "
    "and that they may ask for it again."
)
UNCLEAR = f"Not run: the answer was neither yes nor no. {DO_NOT_RETRY}"
CANNOT_ASK = "the user cannot be asked over the API that this request came by"
ALWAYS_ASKS = "This tool runs only after the user has agreed"
WRITTEN_IN_TEXT = (
    "The call stood in the text of the answer instead of being made natively, so it runs only after the user has agreed"
)
TEXT_REFUSED = (
    "Not run: the call stood in the text of the answer, and this server runs only native calls of tools that change "
    f"something. {DO_NOT_RETRY}"
)

_log = structlog.get_logger(__name__)

REQUEST_PREFIX = "approve:"


def is_approval(request_id: str) -> bool:
    """Return whether a request asks whether a call may run, which it has not done then."""
    return request_id.startswith(REQUEST_PREFIX)


async def nobody_answers(_: InputRequest) -> None:
    """Answer nothing: for runs that nobody watches."""


def everybody_was_asked(_: InputRequest) -> bool:
    """Return True: for askers that always reach somebody."""
    return True


@dataclass(frozen=True, slots=True)
class Approval:
    """The calls that need the user's approval (their tools say so, or their names fit a pattern), and who is asked.

    `text_calls`: what becomes of calls that were read from the model's text, of tools that do more than read.
    `can_ask`: False for the OpenAI routes, whose clients are shown no question. `was_asked`: returns False if
    nobody could be asked a request that `answer_to` has returned None for.
    """

    patterns: Sequence[str] = ()
    answer_to: AnswerTo = nobody_answers
    timeout_seconds: float = 120.0
    text_calls: TextCalls = "ask"
    can_ask: bool = True
    was_asked: Callable[[InputRequest], bool] = everybody_was_asked

    def is_needed(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether the user is asked before the call runs."""
        return tool.asks_first(arguments) or (self.names(tool.name) and tool.does_change(arguments))

    def is_needed_for_text(self, tool: Tool) -> bool:
        """Return whether the user is asked before a call runs that was read from the model's text.

        Raises `ToolDenied` if the server's settings refuse such calls.
        """
        if tool.read_only or self.text_calls == "run":
            return False
        if self.text_calls == "refuse":
            raise ToolDenied(TEXT_REFUSED)
        return True

    def check_can_ask(self, tool_name: str, *, is_from_text: bool = False) -> None:
        """Raise `ToolNotAsked` if nobody can be asked whether this call may run."""
        if self.can_ask:
            return
        advice = "CALLBOARD_TEXT_CALLS=run lets it run unasked" if is_from_text else "ask over the pipe or /v1/runs"
        _log.warning("nobody_to_ask", tool=tool_name, is_from_text=is_from_text, advice=advice)
        because = WRITTEN_IN_TEXT if is_from_text else ALWAYS_ASKS
        raise ToolNotAsked(f"Not run: nobody allowed it. {because}, and {CANNOT_ASK}. {DO_NOT_RETRY}")

    def explain_no_answer(self, request: InputRequest) -> ToolDenied:
        """Return the error of a call whose question got no answer: nobody could be asked, or none came in time."""
        if not self.can_ask:
            return ToolNotAsked(f"Not run: {CANNOT_ASK}. {DO_NOT_RETRY}")
        return ToolNotAnswered(NOT_ANSWERED) if self.was_asked(request) else ToolNotAsked(NOT_ASKED)

    def names(self, tool_name: str) -> bool:
        """Return whether the server's or the agent's settings name a tool whose user is asked before it runs."""
        return any(fnmatchcase(tool_name, pattern) for pattern in self.patterns)

    def request(
        self, tool_name: str, arguments: Mapping[str, Any], tool_call_id: str, *, title: str = "", reason: str = ""
    ) -> InputRequest:
        """Return the question, with `reason` and the arguments exactly as they will be run.

        `title` is the tool's name for people, if it has one. Raises `ToolNotAsked` if the arguments are too long.
        """
        shown = list_arguments(arguments)
        if len(shown) > MAX_SHOWN_CHARS:
            raise ToolNotAsked(
                f"Not run: its arguments are over {MAX_SHOWN_CHARS} characters, too long to be approved."
            )
        return InputRequest(
            # The same when another server asks again: an answer given in between counts.
            request_id=f"{REQUEST_PREFIX}{tool_call_id}",
            kind="confirmation",
            title=f"Run {title} ({tool_name})?" if title else f"Run {tool_name}?",
            message=f"{reason}\n\n{shown}" if reason else shown,
            tool_call_id=tool_call_id,
            timeout_seconds=self.timeout_seconds,
        )

    async def obtain(self, request: InputRequest) -> None:
        """Return once the user has agreed.

        Raises `ToolDenied` if they refuse, `ToolNotAsked` if nobody could be asked, and `ToolNotAnswered` if no answer
        came, or one that is neither true nor false.
        """
        answer = await self.answer_to(request)
        if answer is True:
            return
        if answer is False:
            raise ToolDenied(REFUSED)
        raise self.explain_no_answer(request) if answer is None else ToolNotAnswered(UNCLEAR)


def list_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a line for each argument: its name and its value; a value of several lines stands indented below its name.

    Texts are shown as they are, all other values as JSON.
    """
    shown = from_json(to_json(dict(arguments), inf_nan_mode="null", serialize_unknown=True))
    return "\n".join(_list_fields(shown)) or "No arguments."


def _list_fields(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        label = name if name.isprintable() else to_json(name).decode()
        lines = _show_value(value)
        if len(lines) == 1 and not isinstance(value, dict | list):
            yield f"{label}: {lines[0]}"
        else:
            yield f"{label}:"
            yield from (INDENT + line for line in lines)


def _show_value(value: Any) -> list[str]:
    match value:
        case str() if value:
            return value.split("\n")
        case dict() if value:
            return [*_list_fields(value)]
        case list() if value:
            items = [_show_value(item) for item in value]
            return [("  " if place else "- ") + line for item in items for place, line in enumerate(item)]
        case _:
            return [to_json(value).decode()]
