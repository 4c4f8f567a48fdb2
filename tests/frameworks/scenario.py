"""What a scenario is, and the words in which its model's answers are written.

Expected events are a line each:

    say TEXT · think TEXT · call N NAME ARGUMENTS · status N STATUS MESSAGE PROGRESS · ask N TITLE
    result N TEXT · files N TYPE · failed N CODE · done REASON · error CODE CODE_OF_THE_ENDPOINT

Calls are numbered as they start. Neighbouring texts are joined, ends of calls that follow
each other are in the order of their numbers unless the scenario is about their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.fakes.openai_server import Answer, Body, Chunks, Script, call, chunks, finish, text, usage

StopAt = Literal["call", "text"]

MAX_TOOL_CALLS = 3
"""Of every turn."""

INSTRUCTIONS = "Be kind."
"""The instructions of every framework's agent."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A conversation of one or more turns, each a text of the user, or the parts of a message.

    Attributes:
        sent: The messages of the last model request, without leading system messages; None if they do not matter. An
            ellipsis at the end stands for any text.
        reply: The user's answer to every question, or a function that returns it; None for no answer.
        asked_at_once: The questions that are open before the user answers them.
        stop_at: The event at which the user presses stop.
        errors_say: Texts that the errors' messages must contain.
        before: Messages that the client sends before all others.
        task: Every turn is a background task.
        confirm_tools: The server's setting.
        tool_timeout_seconds: The server's setting.
    """

    name: str
    script: Script
    expected: Sequence[str]
    tools: Sequence[str] = ()
    turns: Sequence[str | list[Body]] = ("go",)
    sent: Sequence[str] | None = None
    reply: Any = None
    asked_at_once: int = 1
    stop_at: StopAt | None = None
    in_order: bool = False
    errors_say: Sequence[str] = ()
    before: Sequence[Body] = ()
    task: str | None = None
    confirm_tools: Sequence[str] = ()
    tool_timeout_seconds: float = 120


def scenario(script: Script, **fields: Any) -> Scenario:
    """A scenario of a test that checks the events itself."""
    return Scenario("own", script, [], **fields)


def says(content: str) -> Answer:
    """An answer in two pieces of text."""
    return chunks(text(content[:3]), text(content[3:]), finish("stop"), usage(10, 5))


def calls(
    *wanted: tuple[str, str], before: str = "", first: int = 0, ids: Sequence[str | None] | None = None
) -> Answer:
    """An answer with tool calls, each a name and its arguments as text, streamed in pieces."""
    parts: list[Body] = [text(before)] if before else []
    for index, (name, arguments) in enumerate(wanted):
        call_id = ids[index] if ids else f"call_{first + index}"
        parts.append(call(name, "", index=index, call_id=call_id))
        parts += [call(arguments=arguments[at : at + 5], index=index) for at in range(0, len(arguments), 5)]
    return chunks(*parts, finish("tool_calls"), usage(10, 5))


def slowly(answer: Answer) -> Answer:
    """The same in pieces that come so slowly that each is shown by itself."""
    assert isinstance(answer, Chunks)
    return replace(answer, pause_seconds=0.05)


ADD = ("add", '{"a": 2, "b": 3}')
ADDED = ("call 1 add {'a': 2, 'b': 3}", "result 1 5")
