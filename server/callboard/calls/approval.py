"""Approval of calls: which calls ask the user before they run, how they ask, and what each answer means."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Protocol

import structlog
from pydantic_core import from_json, to_json

from callboard.calls.context import do_nothing
from callboard.calls.executor import error_text
from callboard.calls.tool import Tool
from callboard.errors import ToolDenied, ToolError, ToolNotAnswered, ToolNotAsked
from callboard.redaction import without_paths
from callboard.settings import TextCalls
from callboard_protocol import InputRequest
from callboard_protocol.events import APPROVAL_PREFIX, WAITING_STATUSES

AnswerTo = Callable[[InputRequest], Awaitable[Any]]
"""Waits for the user's answer to a request whose event has been sent or is about to be; None if no answer comes.

Raises `CallWaits`."""


class CallWaits(Exception):
    """Raised instead of an answer: the call waits for its approval, and its run ends without a result of the call.

    The answer may come days later. A server then begins the run again, with the call in `TurnContext.unfinished`.
    """


INDENT = "    "
"""Begins each line of a value of several lines, so that no line of a value looks like another argument."""

MAX_SHOWN_CHARS = 8_000
"""The longest arguments that a user is asked to approve; a frame could hold far more, but no person reads more."""

FROM_TEXT = "This call was read from the model's text, not called natively: the model may only be quoting it."
"""The reason that a question gives if the call asks only because it was read from text."""

TOOL_CHANGED = (
    "This tool has changed since you allowed it always: its server, its description or its parameters are not the same."
)
"""The reason that a question gives if the user has allowed the tool always, as it was."""

TOOL_CHANGED_SINCE_QUESTION = (
    "the tool has changed since you were asked: its server, its description or its parameters are not the same"
)
"""The reason that a question is asked again."""

PENDING, ASKING = WAITING_STATUSES
WAITING = "waiting for approval"
"""The message of the status `PENDING` of a call while its user is asked whether it may run.

A running call that waits for an answer of its user has the status `ASKING`, because its tool has started."""

ANSWERED = "answered"
"""The message of the status after `ASKING`."""

APPROVED = "approved"
"""The message after the user has agreed. It is recorded before the tool runs: a server that takes over the run finds
it and does not ask again."""

APPROVED_IN_INSPECTOR = "approved in the inspector"
"""The message in place of `APPROVED` if a person in the inspector has agreed, and not the user."""

CHANGED = "changed"
CHANGED_BY_USER = "arguments changed by the user"
"""The status of a call whose arguments the user has changed, and the message of that status."""

CHANGED_BY_AGENT = "arguments changed by the agent"
"""The message of that status if code of a framework's agent has changed them: middleware, a hook or a capability."""

CHANGED_SINCE_CONSENT = "The agent has changed the arguments since you allowed this call."
"""The reason that a question gives if that happened after the user had agreed."""

ALWAYS = "always"
"""The answer that allows a tool in its chat from now on."""

ALLOWED_ALWAYS = "allowed always in this chat"
"""The message in place of `APPROVED` if the user has said so, now or at an earlier call."""

OTHERS_ANSWERED = "the other calls are decided"
"""The message of a call that needs no approval, but could not run before the other calls of its answer were decided."""

AGREED = (APPROVED, APPROVED_IN_INSPECTOR, ALLOWED_ALWAYS, OTHERS_ANSWERED)
"""All messages that say that a call may run."""

DO_NOT_RETRY = "Do not try again: tell the user what was not done."
REFUSED = "Not run: the user refused it. Do not try again; ask what they would like instead."
REFUSED_IN_INSPECTOR = (
    "Not run: a person in the inspector refused it, not the user. Do not try again; ask the user what they would like "
    "instead."
)
ANSWERED_INSTEAD = "Not run: the user refused it and answered instead:"
"""Begins the error for a call that is refused with words, which follow. The inspector has no field for words."""

NOT_ASKED = (
    "Not run: the user could not be asked, so they have not refused it. A question needs a chat that its user has "
    f"open. {DO_NOT_RETRY}"
)
NOT_ANSWERED = (
    "Not run: no answer came in time, but the user has not refused it. Do not try again now: tell the user what was "
    "not done, and that they may ask for it again."
)
UNCLEAR = f"Not run: the answer was neither yes nor no. {DO_NOT_RETRY}"
CANNOT_ASK = "the user cannot be asked over the API that this request came by"
ALWAYS_ASKS = "This tool runs only after the user has agreed"
WRITTEN_IN_TEXT = (
    "The model wrote the call into its text instead of calling natively, so it runs only after the user has agreed"
)
TEXT_REFUSED = (
    "Not run: the call was written into the text of the answer, and this server runs only native calls of tools that "
    f"change something. {DO_NOT_RETRY}"
)

_log = structlog.get_logger(__name__)


def is_approval(request_id: str) -> bool:
    """Return whether a request asks for the approval of a call, whose tool has not run yet."""
    return request_id.startswith(APPROVAL_PREFIX)


def explain_refusal(answer: Any, *, is_from_inspector: bool) -> str | None:
    """Return the error for a call that the answer refuses, with the user's words if it has some; otherwise None."""
    match answer:
        case {"words": str() as words} if words.strip():
            return f"{ANSWERED_INSTEAD}\n\n{words.strip()}"
        case False | {"words": str()}:
            return REFUSED_IN_INSPECTOR if is_from_inspector else REFUSED
    return None


def may_allow(answer: Any) -> bool:
    """Return whether an answer is meant to allow its call, perhaps with changed arguments."""
    if isinstance(answer, dict):
        return isinstance(answer.get("arguments"), dict) and not isinstance(answer.get("words"), str)
    return answer is True or bool(answer == ALWAYS)


class RememberedApprovals(Protocol):
    """The tools that the user has allowed always in the chat."""

    async def answer(self, request: InputRequest, tool_name: str) -> bool:
        """Answer an approval before it is asked, if its tool is always allowed.

        Return whether the tool has changed since it was allowed, and therefore needs an answer of the user.
        """

    async def add(self, tool_name: str, fingerprint: str) -> None:
        """Allow the tool always, as long as it has this fingerprint."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Which calls need the user's approval, and how the user is asked.

    A call needs approval if its tool says so, or if the tool's name matches one of `patterns`. `text_calls` is the
    setting for calls that were read from the model's text and may change something. `can_ask` is False on the OpenAI
    routes, whose clients cannot show a question. `was_asked` returns False if no user could be shown a request for
    which `answer_to` returned None; `is_from_inspector` returns True if a person in the inspector answered the request,
    and not the user. `remembered` are the tools that are always allowed; None if there is no chat or user to remember
    them for. `forbid_always` are patterns of tools that cannot be allowed always.
    """

    patterns: Sequence[str] = ()
    answer_to: AnswerTo = do_nothing
    text_calls: TextCalls = "ask"
    can_ask: bool = True
    was_asked: Callable[[InputRequest], bool] = lambda _: True
    is_from_inspector: Callable[[InputRequest], bool] = lambda _: False
    remembered: RememberedApprovals | None = None
    forbid_always: Sequence[str] = ()

    def is_needed(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether the user is asked before the call runs. Raises `ToolError` if the tool's check fails."""
        try:
            return bool(tool.asks_first(arguments) or (self.names(tool.name) and tool.does_change(arguments)))
        except ToolError:
            raise
        except Exception as error:
            # The function is the tool author's, and may raise anything. The error is of this call, not of the run.
            _log.error("approval_check_failed", tool=tool.name, exc_info=error)
            reason = without_paths(f"{type(error).__name__}: {error_text(error)}")
            raise ToolError(f"Not run: the check whether it needs approval failed ({reason}).") from error

    def is_needed_for_text(self, tool: Tool) -> bool:
        """Return whether the user is asked before a call of the model's text runs.

        Raises `ToolDenied` if the server's settings refuse such calls.
        """
        if tool.read_only or self.text_calls == "run":
            return False
        if self.text_calls == "refuse":
            raise ToolDenied(TEXT_REFUSED)
        return True

    def check_can_ask(self, tool_name: str, *, is_from_text: bool = False) -> None:
        """Raise `ToolNotAsked` if the run has no way to ask its user about this call."""
        if self.can_ask:
            return
        advice = "CALLBOARD_TEXT_CALLS=run lets it run unasked" if is_from_text else "ask over the pipe or /v1/runs"
        _log.warning("user_cannot_be_asked", tool=tool_name, is_from_text=is_from_text, advice=advice)
        because = WRITTEN_IN_TEXT if is_from_text else ALWAYS_ASKS
        raise ToolNotAsked(f"Not run: it was not approved. {because}, and {CANNOT_ASK}. {DO_NOT_RETRY}")

    def explain_no_answer(self, request: InputRequest) -> ToolDenied:
        """Return the error for a question without an answer: it could not be asked, or no answer came in time."""
        if not self.can_ask:
            return ToolNotAsked(f"Not run: {CANNOT_ASK}. {DO_NOT_RETRY}")
        return ToolNotAnswered(NOT_ANSWERED) if self.was_asked(request) else ToolNotAsked(NOT_ASKED)

    def names(self, tool_name: str) -> bool:
        """Return whether the settings of the server or the agent name the tool as one that asks."""
        return matches_any(tool_name, self.patterns)

    def request(
        self,
        tool_name: str,
        arguments: Mapping[str, Any],
        tool_call_id: str,
        *,
        title: str = "",
        reason: str = "",
        form: Mapping[str, Any] = MappingProxyType({}),
        fingerprint: str = "",
    ) -> InputRequest:
        """Return the question: `reason`, and the arguments exactly as the tool will get them.

        `title` is the name of the tool for people, if it has one. `form` is the schema of the arguments that the user
        may change. Only a tool with a `fingerprint` can be allowed always. Raises `ToolNotAsked` if the arguments are
        too long.
        """
        shown = list_arguments(arguments)
        if len(shown) > MAX_SHOWN_CHARS:
            raise ToolNotAsked(
                f"Not run: its arguments are over {MAX_SHOWN_CHARS} characters, too long to be approved."
            )
        request = InputRequest(
            # Not random: if another server asks again, an answer to the first question still counts.
            request_id=f"{APPROVAL_PREFIX}{tool_call_id}",
            kind="confirmation",
            title=f"{title or f'Run {tool_name}'}?",
            message=shown,
            arguments=show_values(arguments),
            schema=dict(form),
            remember=self.remembered is not None
            and bool(fingerprint)
            and not reason
            and not matches_any(tool_name, self.forbid_always),
            tool_call_id=tool_call_id,
            tool_fingerprint=fingerprint,
        )
        return add_reason(request, reason) if reason else request

    async def remember(self, answer: Any, request: InputRequest, tool_name: str, fingerprint: str) -> None:
        """Allow the tool with this fingerprint always, if the answer says so."""
        if self._is_always(answer, request) and self.remembered:
            await self.remembered.add(tool_name, fingerprint)

    def _is_always(self, answer: Any, request: InputRequest) -> bool:
        """Return whether the answer allows the tool always, which only the user can do."""
        return bool(answer == ALWAYS and request.remember and not self.is_from_inspector(request))

    def apply(self, answer: Any, request: InputRequest) -> str:
        """Return one of the messages `AGREED` if the call may run.

        Raises `ToolDenied` if it is refused, `ToolNotAsked` if no user could be asked, and `ToolNotAnswered` if no
        answer came or the answer is neither yes nor no.
        """
        is_from_inspector = self.is_from_inspector(request)
        if refused := explain_refusal(answer, is_from_inspector=is_from_inspector):
            raise ToolDenied(refused)
        if answer is True:
            return APPROVED_IN_INSPECTOR if is_from_inspector else APPROVED
        if self._is_always(answer, request):
            return ALLOWED_ALWAYS
        raise self.explain_no_answer(request) if answer is None else ToolNotAnswered(UNCLEAR)


def matches_any(tool_name: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the patterns names the tool."""
    return any(fnmatchcase(tool_name, pattern) for pattern in patterns)


def add_reason(request: InputRequest, reason: str) -> InputRequest:
    """Return the question with a reason before its message. Without `arguments` it is drawn from its message."""
    return request.model_copy(update={"message": f"{reason}\n\n{request.message}", "arguments": None})


def list_arguments(arguments: Mapping[str, Any]) -> str:
    """Return one line for each argument, with its name and value; a value of several lines follows its name, indented.

    Texts are unchanged; all other values are JSON.
    """
    return "\n".join(_list_fields(show_values(arguments))) or "No arguments."


def show_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as a JSON object."""
    written = to_json(dict(arguments), bytes_mode="base64", inf_nan_mode="null", serialize_unknown=True)
    shown: dict[str, Any] = from_json(written)
    return shown


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
