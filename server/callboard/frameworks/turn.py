"""One turn of a framework's agent: converts the framework's actions to events and applies the server's limits.

The framework runs in its own task and calls the turn from wherever its tools run. The run reads the events at its own
pace.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import takewhile
from typing import Any, Literal, get_args
from uuid import uuid4

from pydantic_core import from_json, to_json, to_jsonable_python

from callboard._endpoint_rules import order_messages
from callboard.agents import RunContext
from callboard.agents.context import TurnContext
from callboard.agents.notices import LIMIT_REACHED, NOTHING_SAID, SHOWN_TO_USER
from callboard.calls import Tool, ToolCall, ToolResult
from callboard.calls.forms import ask_until_fitting
from callboard.calls.pictures import Pictures
from callboard.calls.runner import CallRunner, EventBuffer
from callboard.calls.running_tool import tools_around
from callboard.calls.tool import as_result
from callboard.errors import ModelError, ToolDenied
from callboard.frameworks.failures import model_error
from callboard.frameworks.turn_messages import TurnMessages
from callboard.models import ChatDict, TokenUsage
from callboard.models.messages import content_text
from callboard.observers import Observation, ObservedRequest
from callboard.text import storable
from callboard_formats.leading_thought import LeadingThought
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Plan,
    PlanState,
    PlanStep,
    Reasoning,
    Rewind,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    UserMessage,
)

AGENT_ASKS = "The agent asks"
DECLINED = "Not run: the question was declined. Do not ask it again; ask what the user would like instead."


class AdapterTurn:
    """The interface of a run for an adapter, which adds text, requests and files here, and calls in `calls`.

    A call is identified by the id that the framework gives it. If the framework lets the adapter change that id, the
    adapter passes it through `claim_call_id` first, so that the model sees the same id as the store.
    """

    def __init__(self, given: RunContext) -> None:
        self.context, self._answer, results = _without_unfinished_answer(TurnContext.of(given))
        self.events = EventBuffer(self._track)
        self.calls = CallRunner(self.events, self.context)
        self.calls.continue_calls(self.context.unfinished, results)
        self._messages = TurnMessages()
        self._answered_ids = {call["id"] for call in self._answer["tool_calls"]} if self._answer else set()
        self._is_repeating = False
        self._requests: list[ObservedRequest] = []
        self._pending: list[Callable[[], None]] = []
        self._usage: TokenUsage | None = None
        self.has_text = False
        """The answer has text since the last call began."""
        self._had_text_before_call = False
        self._begins_paragraph = False
        self._line_ends = 0
        self._thought = LeadingThought()
        self._is_discarded = False
        self._draft = StringIO()
        self._sources: list[Source] = []
        self.call_events = 0
        """The number of starts and ends of calls and of the user's messages so far. When it changes, `rewind` no longer
        reaches the earlier text.
        """

    @property
    def draft(self) -> str:
        """Return the text of the answer since the last start or end of a call, which `rewind` takes back."""
        return self._draft.getvalue()

    @property
    def tools_called_before(self) -> frozenset[str]:
        """Return the names of the tools that this turn called before this server took it over."""
        this_turn = takewhile(lambda message: message["role"] != "user", reversed(self.context.messages))
        return frozenset(call["function"]["name"] for message in this_turn for call in message.get("tool_calls") or ())

    def claim_call_id(self, call_id: str | None) -> str:
        """Return an id that is unique in the chat: `call_id` itself if it is, or if the call is continued here."""
        if call_id in self._answered_ids:
            # Once: the model may give a later call the same id.
            self._answered_ids.remove(call_id)
            return str(call_id)
        return self.context.claim_tool_call_id(call_id or "")

    def take_unfinished_answer(self) -> ChatDict | None:
        """Return the answer that the model has given at another server, for an adapter with `calls_can_wait`; once.

        The adapter gives it to the framework in place of the model's first answer. Its calls then end with their
        `calls.earlier_results`, or run. Its text is not shown again.
        """
        answer, self._answer = self._answer, None
        self._is_repeating = answer is not None
        if answer is not None:
            self._messages.restore(answer, self.calls.earlier_results)
        return answer

    async def take_message(self, *, is_last: bool = False) -> str:
        """Return the user's unread messages to the run as one text; an empty text if there are none.

        Call it before a request of the agent itself, and give the model the text as a message of the user, in this
        request and in the later ones. With `is_last`, the run accepts no more messages if there is none.
        """
        if self._answer is not None:
            # The results of these calls come first.
            return ""
        messages = await self.context.take_messages(is_last=is_last)
        for message in messages:
            self.events.send(message)
        # One message, because filters of frameworks often read only the last one.
        return "\n\n".join(message.content for message in messages)

    async def take_last_message(self) -> bool:
        """Add the turn so far to the conversation if the user has sent something that no model has read.

        Return whether this is so: the framework then runs again, to answer it.
        """
        self.finish_answer()
        text = await self.take_message(is_last=True)
        if text:
            replaced = self.context.replaced
            before = [
                {**message, "content": replaced.get(content_text(content), content)}
                for message in self.context.messages
                for content in [message.get("content")]
            ]
            whole = order_messages([*before, *self._messages.as_messages(replaced)])
            self.context = replace(self.context, messages=whole)
            self._messages = TurnMessages()
        return bool(text)

    def add_text(self, text: str) -> None:
        """Add a piece of the answer, which may begin with a thought between `<think>` and `</think>`."""
        if not text or self._is_discarded or self._is_repeating:
            return
        self._draft.write(text)
        self._send(*self._thought.feed(text))

    def begin_paragraph(self) -> None:
        """Separate the next text from the text before it by an empty line."""
        self.finish_answer()
        self._begins_paragraph = True

    def finish_answer(self) -> None:
        """Send the text that was held back: the model's answer is complete."""
        self._send(*self._thought.finish())
        self._thought = LeadingThought()

    def add_reasoning(self, text: str) -> None:
        """Add a piece of reasoning."""
        if not (self._is_discarded or self._is_repeating):
            self._send(text, "")

    def rewind(self) -> None:
        """Take back text and reasoning since the last start or end of a call, or since the turn began.

        For a framework that discards its model's answer and asks again. Call it before the new answer begins.
        """
        self.has_text = self._had_text_before_call
        self._begins_paragraph = True
        self._draft = StringIO()
        self._thought = LeadingThought()
        self.events.send(Rewind())

    def replace_text(self, text: str) -> None:
        """Replace the text since the last start or end of a call, for example after a guardrail changed the answer."""
        self.rewind()
        self.add_text(text)

    def discard_answer(self) -> None:
        """Take back the answer and ignore the rest of it: a guardrail refused it, and the run ends with an error."""
        self.rewind()
        self._is_discarded = True

    def show_status(self, text: str) -> None:
        """Show one status line about the whole run."""
        self.events.send(Status(content=storable(text)))

    def show_plan(self, todos: object) -> None:
        """Show the steps of the agent's work: mappings with `content` and `status`. Other values are ignored."""
        if not isinstance(todos, Sequence):
            return
        found = [todo for todo in todos if isinstance(todo, Mapping) and todo.get("content")]
        steps = tuple(
            PlanStep(id=str(number), content=str(todo["content"]), state=_read_state(todo.get("status")))
            for number, todo in enumerate(found, 1)
        )
        self.events.send(Plan(steps=steps))

    def show_arguments(self, call_id: str, name: str, delta: str) -> None:
        """Show a piece of a call's arguments while the model writes them.

        Calls inside a running tool are only lines of that tool's card, which show no arguments, so nothing is sent for
        them.
        """
        if tools_around() or self._is_repeating:
            return
        self.events.send(ToolCallArgsDelta(tool_call_id=call_id, tool_name=name, delta=delta))

    def note_tools(self, tools: Iterable[object]) -> None:
        """Note the tools that the model is offered, as the JSON objects that it is sent: `{"name": …}` in any form.

        Only such a tool can be allowed always, and it asks again if its object has changed.
        """
        origins = {tool.name: tool.origin for tool in self.context.openwebui_tools}
        for tool in tools:
            if isinstance(tool, Mapping) and (name := (tool.get("function") or tool).get("name")):
                self.calls.shown_tools[name] = origins.get(name), tool

    def observe_request(self, model: str, messages: int, tools: int) -> ObservedRequest:
        """Report the start of a model request to the run's observers.

        The caller reports the answer on the returned object.
        """
        self._is_repeating = False
        request = _FrameworkRequest(self._observe, model, messages, tools)
        self._requests = [*(known for known in self._requests if not known.has_ended), request]
        return request

    def add_usage(
        self,
        input_tokens: int | None,
        output_tokens: int | None,
        *,
        cached_tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> TokenUsage:
        """Add the tokens of one model request to the turn's usage, and return them.

        `cached_tokens` are part of the input tokens, `reasoning_tokens` of the output tokens.
        """
        read = input_tokens or 0
        written = output_tokens or 0
        usage = TokenUsage(read, written, read + written, cached_tokens or 0, reasoning_tokens or 0)
        self._usage = usage + (self._usage or TokenUsage())
        return usage

    def mask(self, text: str) -> str:
        """Return `text` with secrets replaced, as it may be sent to a model."""
        return self.context.redaction(text)

    def add_files(self, files: Sequence[Mapping[str, Any]]) -> None:
        """Show files that the model itself generates, each as a call that has already finished."""
        for file in files:
            name = f"{file.get('type') or 'file'}_generation"
            self.calls.emit_finished(
                ToolCall(self.claim_call_id(None), name, {}), ToolResult(SHOWN_TO_USER, files=(file,))
            )
        # An answer may consist of pictures only.
        self.has_text = self._had_text_before_call = True

    def add_source(self, source: Source) -> None:
        """Add a source of the answer, unless it has been added before."""
        if source not in self._sources:
            self._sources.append(source)
            self.events.send(source)

    async def ask(self, request: InputRequest) -> Any:
        """Ask the user, and return the answer.

        Raises `ToolNotAsked` if no client can ask the user, and `ToolNotAnswered` if no answer comes in time or fits.
        """
        approval = self.context.approval
        if not approval.can_ask:
            raise approval.explain_no_answer(request)

        async def send(asked: InputRequest) -> Any:
            self.events.send(asked)
            return await approval.answer_to(asked)

        with self.calls.waiting(request.tool_call_id):
            answer = await ask_until_fitting(request, send)
        if answer is None:
            raise approval.explain_no_answer(request)
        return answer

    def final_events(self) -> list[Event]:
        """Return the last events of a turn whose framework has finished: a text if there was none, `Usage`, `Done`."""
        events: list[Event] = []
        if not self.has_text and self.context.task is None:
            events.append(Message(content=LIMIT_REACHED if self.calls.is_over_limit else NOTHING_SAID))
        if (usage := self._usage) is not None:
            events.append(usage.to_event())
        return [*events, Done(finish_reason="max_turns" if self.calls.is_over_limit else "stop")]

    def close(self) -> None:
        """Send pending notifications to observers, and end the requests that the framework left open."""
        for request in self._requests:
            request.end(asyncio.CancelledError())
        while self._pending:
            self._notify_next()

    def _observe(self, what: Observation) -> None:
        # Sent in the order of the events, which are read later, but in the context of the request: it may belong to an
        # agent inside a tool.
        self._pending.append(partial(copy_context().run, self.context.observers.tell, what))
        self.events.call_in_order(self._notify_next)

    def _notify_next(self) -> None:
        self._pending.pop(0)()

    def _track(self, event: Event) -> None:
        if isinstance(event, ToolCallStart | ToolCallComplete | ToolCallError | UserMessage):
            self._end_text(event)
        self._messages.add(event)

    def _end_text(self, event: Event) -> None:
        self.finish_answer()
        self._draft = StringIO()
        self.call_events += 1
        if isinstance(event, ToolCallStart | UserMessage):
            # Text before a call or a message does not count as an answer to it.
            self.has_text = False
        else:
            # The result may be the rest of the answer, without another request.
            self._is_repeating = False
        self._had_text_before_call = self.has_text

    def _send(self, reasoning: str, text: str) -> None:
        if reasoning:
            self.events.send(Reasoning(content=reasoning))
        if not text:
            return
        if self._begins_paragraph and self.has_text:
            text = "\n" * max(0, 2 - self._line_ends) + text
        self._begins_paragraph = False
        self.has_text = self.has_text or not text.isspace()
        self._line_ends = len(text) - len(text.rstrip("\n"))
        self.events.send(Message(content=text))


def _without_unfinished_answer(context: TurnContext) -> tuple[TurnContext, ChatDict | None, dict[str, str]]:
    """Return the context without the answer whose calls are continued; that answer; and its calls' results by id."""
    unfinished = {call.id for call in context.unfinished}
    rounds = [{call["id"] for call in one.get("tool_calls") or ()} for one in context.messages]
    place = next((place for place, ids in enumerate(rounds) if ids & unfinished), None)
    if place is None:
        return context, None, {}
    # A framework that ends calls before it starts the next ones of the answer has several rounds for it.
    answer = context.messages[place:]
    calls = [call for one in answer for call in one.get("tool_calls") or ()]
    results = {one["tool_call_id"]: content_text(one.get("content")) for one in answer if one["role"] == "tool"}
    return replace(context, messages=context.messages[:place]), {**answer[0], "tool_calls": calls}, results


def _read_state(status: object) -> PlanState:
    return next((state for state in get_args(PlanState) if state == status), "pending")


class CallLimitIgnored(Exception):
    """The model called a tool although the turn's limit was reached and the request offered none."""


@contextmanager
def discarding_unchecked_answer(turn: AdapterTurn) -> Iterator[None]:
    """Return a context that discards the turn's answer if the run fails for any reason except its model.

    Such a run failed while it checked its whole answer, and an unchecked answer must not be shown.
    """
    try:
        yield
    except ModelError:
        raise
    except Exception:
        turn.discard_answer()
        raise


async def ask_user(
    turn: AdapterTurn,
    kind: Literal["confirmation", "input", "form"],
    message: str,
    call_id: str | None,
    *,
    title: str = AGENT_ASKS,
    schema: Mapping[str, object] | None = None,
    choices: Sequence[str] = (),
    other: bool = False,
) -> Any:
    """Ask the user a question that belongs to a call, and return the answer. For the parameters see `InputRequest`.

    Raises `ToolDenied` if the user declines to fill in a form, cannot be asked, or does not answer in time.
    """
    answer = await turn.ask(
        InputRequest(
            request_id=uuid4().hex,
            kind=kind,
            title=title,
            message=message,
            schema=dict(schema or {}),
            choices=tuple(choices),
            other=other,
            tool_call_id=call_id,
        )
    )
    if kind == "form" and answer is False:
        raise ToolDenied(DECLINED)
    return answer


async def run_openwebui_tool(turn: AdapterTurn, tool: Tool, /, **arguments: Any) -> str:
    """Run the tool for the call that runs in this task, and return its text for the model.

    Sources belong to the answer. Files are shown as the files of a model are, because a framework passes on text only.
    Raises `ToolError`.
    """
    result = as_result(await tool.function(**arguments))
    for source in result.sources:
        turn.add_source(Source.model_validate(source))
    pictures = Pictures(result.files)
    text = pictures.take_from(result.text)
    if pictures.files:
        turn.add_files(pictures.files)
    return text


def to_text(output: object) -> str:
    """Return what a framework returns as text: a text as it is, nothing for None, any other value as JSON."""
    if isinstance(output, str):
        return output
    return "" if output is None else to_json(output, serialize_unknown=True).decode()


def is_same_output(output: object, text: str) -> bool:
    """Return whether a run's output is the model's text, or the object that the text is as JSON."""
    if isinstance(output, str):
        return output.strip() == text.strip()
    try:
        return bool(from_json(text) == to_jsonable_python(output, serialize_unknown=True))
    except ValueError:
        # The framework made the object from another text, for example from JSON between other words.
        return True


def to_source(url: str, title: str | None = None, text: str | None = None) -> Source:
    """Return a web page as a source; `text` is the cited part."""
    name = title or url
    return Source(source={"name": name, "url": url}, document=(text or name,), metadata=({"source": url},))


class _FrameworkRequest(ObservedRequest):
    """A framework's model request, whose failure is reported by the name of Callboard's error class if it has one."""

    def end(self, error: BaseException | None = None) -> None:
        super().end((error and model_error(error, self.model)) or error)
