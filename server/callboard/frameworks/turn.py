"""One turn of a foreign agent: what it does becomes events, what it runs is held to the server's rules.

The framework runs in a task of its own and speaks to the turn from wherever its tools are
called; the run reads the events at its own pace.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from typing import Any

from callboard._agents import RunContext, TurnContext
from callboard._agents.answer import SHOWN
from callboard._agents.tool_loop import LIMIT_REACHED, NOTHING_SAID, usage_event
from callboard._text import storable
from callboard.calls import CallRunner, EventBuffer, ToolCall, ToolResult
from callboard.calls.running_tool import tools_around
from callboard.errors import ModelError
from callboard.frameworks.failures import model_error
from callboard.frameworks.thoughts import ThoughtReader, Words
from callboard.models import TokenUsage
from callboard.observers import Observation, ObservedRequest
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Reasoning,
    Rewind,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)


class Turn:
    """The turn to which an adapter tells its framework's run, and which it asks; of the run's calls it tells `calls`.

    Calls are known by the id that the framework gives them; an adapter that can give the
    framework another passes each through `claim` first, so that the model is sent the id that the
    store has.
    """

    def __init__(self, given: RunContext) -> None:
        self.context = context = TurnContext.of(given)
        self.events = EventBuffer(self._note)
        self.calls = CallRunner(self.events, context.make_call_context(context.agent_id))
        self._requests: list[ObservedRequest] = []
        self._untold: list[Callable[[], None]] = []
        self._usage: TokenUsage | None = None
        self._said = self._said_by_then = False
        self._begins_paragraph = False
        self._line_ends = 0
        self._thoughts = ThoughtReader()
        self._has_draft = False
        self._is_refused = False
        self.draft = ""
        """The words of the answer since the last start or end of a call, which `rewind` takes back."""
        self.call_events = 0
        """The number of starts and ends of calls so far: a change means that `rewind` reaches no further back."""

    @property
    def has_said(self) -> bool:
        """Return whether there are words of an answer since the last call began."""
        return self._said

    @property
    def called_before(self) -> frozenset[str]:
        """Return the names of the tools that were called in this turn before it began here, on another server say."""
        told = takewhile(lambda message: message["role"] != "user", reversed(self.context.messages))
        return frozenset(call["function"]["name"] for message in told for call in message.get("tool_calls") or ())

    def claim(self, call_id: str | None) -> str:
        """Return the id to give the framework in place of `call_id`: the same where it is new to the chat."""
        return self.context.claim_tool_call_id(call_id or "")

    def say(self, text: str) -> None:
        """Add a piece of the answer, which may begin with a thought between tags."""
        if not text or self._is_refused:
            return
        self._has_draft = True
        self.draft += text
        for words in self._thoughts.feed(text):
            self._show(words)

    def begin_paragraph(self) -> None:
        """Have what is said next stand apart from what was said before it."""
        self.finish_answer()
        self._begins_paragraph = True

    def finish_answer(self) -> None:
        """Show what is held back of an answer, which is over."""
        for words in self._thoughts.finish():
            self._show(words)
        self._thoughts = ThoughtReader()

    def think(self, text: str) -> None:
        """Add a piece of reasoning."""
        if text and not self._is_refused:
            self._show(Words(text, is_thought=True))

    def rewind(self) -> None:
        """Take back what was said and thought since the last start or end of a call, or since the turn began.

        For a framework that drops its model's answer and asks again: call it before the new one begins.
        """
        self._said = self._said_by_then
        self._begins_paragraph = True
        self._drop_draft()
        self.events.send(Rewind())

    def replace(self, text: str) -> None:
        """Say `text` in place of what was said since the last start or end of a call: a guard has changed it."""
        self.rewind()
        self.say(text)

    def refuse(self) -> None:
        """Take back the answer that a guard refuses, and ignore what still comes of it: the run ends with an error."""
        if self._has_draft:
            self.rewind()
        self._is_refused = True

    def show_status(self, text: str) -> None:
        """Show one line about the run as a whole."""
        self.events.send(Status(content=storable(text)))

    def show_arguments(self, call_id: str, name: str, delta: str) -> None:
        """Show a piece of a call's arguments, while the model writes them.

        Not those of calls inside a running tool: they are lines of its card, and their start says so.
        """
        if tools_around():
            return
        self.events.send(ToolCallArgsDelta(tool_call_id=call_id, tool_name=name, delta=delta))

    def ask_model(self, model: str, messages: int, tools: int) -> ObservedRequest:
        """Tell the run's observers of a request to a model that begins; use what is returned to tell of its answer."""
        request = _FrameworkRequest(self._observe, model, messages, tools)
        self._requests = [*(one for one in self._requests if not one.has_ended), request]
        return request

    def add_usage(
        self,
        input_tokens: int | None,
        output_tokens: int | None,
        *,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> TokenUsage:
        """Add what one request to the model cost, and return it.

        Cached tokens are of the input, those of reasoning of the output.
        """
        read = input_tokens or 0
        written = output_tokens or 0
        spent = TokenUsage(read, written, read + written, cached_tokens or 0, reasoning_tokens or 0)
        self._usage = spent + (self._usage or TokenUsage())
        return spent

    def mask(self, text: str) -> str:
        """Return `text` as a model may be told it: without secrets."""
        return self.context.redaction(text)

    def show_files(self, files: Sequence[Mapping[str, Any]]) -> None:
        """Show pictures and other files that the model itself gives: each as a call that is over."""
        for file in files:
            name = f"{file.get('type') or 'file'}_generation"
            self.calls.emit_finished(ToolCall(self.claim(None), name, {}), ToolResult(SHOWN, files=(file,)))
        # A picture is an answer too.
        self._said = self._said_by_then = True

    def cite(self, source: Source) -> None:
        """Show a source of what is said."""
        self.events.send(source)

    async def ask(self, request: InputRequest) -> Any:
        """Ask the user, and return their answer.

        Raises `ToolNotAsked` if nobody could be asked, and `ToolNotAnswered` if no answer came in time.
        """
        approval = self.context.approval
        if not approval.can_ask:
            raise approval.explain_no_answer(request)
        self.events.send(request)
        with self.calls.waiting(request.tool_call_id):
            answer = await approval.answer_to(request)
        if answer is None:
            raise approval.explain_no_answer(request)
        return answer

    def end(self) -> list[Event]:
        """Return the last events of a turn whose framework has ended it: a text if there was none, `Usage`, `Done`."""
        events: list[Event] = []
        if not self._said and self.context.task is None:
            events.append(Message(content=LIMIT_REACHED if self.calls.is_over_limit else NOTHING_SAID))
        if (usage := self._usage) is not None:
            events.append(usage_event(usage))
        return [*events, Done(finish_reason="max_turns" if self.calls.is_over_limit else "stop")]

    def close(self) -> None:
        """Tell observers of what nobody has read, and end the requests that the framework has left open."""
        for request in self._requests:
            request.end(asyncio.CancelledError())
        while self._untold:
            self._tell_next()

    def _observe(self, what: Observation) -> None:
        # In the order of the events, which are read later, and as whoever asked: it may be an agent in a tool.
        self._untold.append(partial(copy_context().run, self.context.observers.tell, what))
        self.events.call_in_order(self._tell_next)

    def _tell_next(self) -> None:
        tell = self._untold.pop(0)
        tell()

    def _note(self, event: Event) -> None:
        match event:
            case ToolCallStart():
                self.finish_answer()
                self.call_events += 1
                self._drop_draft()
                # What was said before a call is no answer to its result.
                self._said = self._said_by_then = False
            case ToolCallComplete() | ToolCallError():
                self.finish_answer()
                self.call_events += 1
                self._drop_draft()
                self._said_by_then = self._said
            case _:
                pass

    def _show(self, words: Words) -> None:
        self._has_draft = True
        if words.is_thought:
            self.events.send(Reasoning(content=words.text))
            return
        text = words.text
        if self._begins_paragraph and self._said:
            text = "\n" * max(0, 2 - self._line_ends) + text
        self._begins_paragraph = False
        self._said = self._said or not text.isspace()
        self._line_ends = len(text) - len(text.rstrip("\n"))
        self.events.send(Message(content=text))

    def _drop_draft(self) -> None:
        self._has_draft = False
        self.draft = ""
        self._thoughts = ThoughtReader()


class AnswerGuard:
    """A context that takes the answer back if the run in it fails by anything but its model.

    Such a run has failed in a check of its whole answer, and an answer that was not checked is not let through.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ModelError):
            self._turn.refuse()


def source_of(url: str, title: str | None = None, text: str | None = None) -> Source:
    """Return a web page as a source; `text` is what is cited of it."""
    name = title or url
    return Source(source={"name": name, "url": url}, document=(text or name,), metadata=({"source": url},))


class _FrameworkRequest(ObservedRequest):
    """A request of a framework, whose failures have Callboard's names where they are known."""

    def end(self, error: BaseException | None = None) -> None:
        super().end((error and model_error(error, self.model)) or error)
