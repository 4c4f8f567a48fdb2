"""A stage for the tool loop: a model that answers from a list, and tools to call."""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from callboard._formats import Format
from callboard.agents.context import TurnContext
from callboard.agents.tool_loop import run_tool_loop
from callboard.calls import Tool, tool
from callboard.calls.limits import Allowance, Limits
from callboard.models import Finish, ModelDelta, ModelRequest, Pause, ScriptedModel, TextDelta, ToolCallDelta
from callboard.redaction import Redaction
from callboard_protocol import Event, Message, ToolCallArgsDelta, ToolCallError, User
from tests.agents.conftest import Claims

Answer = Iterable[ModelDelta | Pause]


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def wants(name: str, arguments: Any = None, *, index: int = 0, call_id: str | None = None) -> ToolCallDelta:
    """A whole call in one delta; `arguments` is JSON text as it is, or an object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCallDelta(index, call_id, name, text)


class Stage:
    """Plays one turn: `answers` are the model's, one a request; `requests` what it was sent."""

    def __init__(
        self,
        answers: Sequence[Answer],
        tools: Sequence[Tool] = (),
        *,
        tool_format: Format | None = None,
        allowances: Sequence[Allowance] = (),
        **limits: Any,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.events: list[Event] = []
        self.redaction = Redaction()
        self._answers = iter(answers)
        self._tools = tools
        self._limits = Limits(**limits)
        self._format = tool_format
        self._allowances = allowances

    def turn(self) -> AsyncGenerator[Event, None]:
        """The turn's events, not yet begun."""
        asked = [{"role": "user", "content": "go"}]
        context = TurnContext(
            "r",
            asked,
            Claims(),
            ScriptedModel(self._script),
            "chat_1",
            user=User(id="u1"),
            limits=self._limits,
            redaction=self.redaction,
            allowances=self._allowances,
        )
        return run_tool_loop(context, lambda: self._tools, tool_format=self._format)

    async def play(self) -> list[Event]:
        """The whole turn, without the arguments' pieces."""
        self.events = [event async for event in self.turn()]
        return [event for event in self.events if not isinstance(event, ToolCallArgsDelta)]

    def _script(self, request: ModelRequest) -> Answer:
        self.requests.append(replace(request, messages=list(request.messages)))
        return next(self._answers)


def text_of(events: Sequence[Event]) -> str:
    """The answer that the user reads."""
    return "".join(event.content for event in events if isinstance(event, Message))


def errors(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event.code, event.error) for event in events if isinstance(event, ToolCallError)]


def says(text: str, reason: str | None = "stop") -> list[ModelDelta]:
    """An answer in text."""
    return [TextDelta(text), Finish(reason)]


def results_sent(stage: Stage) -> list[str]:
    """What the model was told of its calls, in the last request."""
    return [message["content"] for message in stage.requests[-1].messages if message["role"] == "tool"]
