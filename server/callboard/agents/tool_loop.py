"""The tool loop: ask the model, run the calls of its answer, give it the results, ask again.

`callboard._formats` describes the tools to the model and reads its calls. The loop does not store its events: the
recorder of the run does.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from callboard._endpoint_rules import order_messages
from callboard._formats import Format, ProviderDetails, resolve_tool_name, round_messages
from callboard._streams import closing_stream
from callboard.agents.answer import ModelAnswer
from callboard.agents.context import RunContext, TurnContext
from callboard.agents.resolving import resolve_calls
from callboard.calls import Tool, ToolCall
from callboard.calls.call import ResolvedCall, read_object, write_arguments
from callboard.calls.runner import CallRunner, EventBuffer
from callboard.models import ChatDict, ModelRequest, TokenUsage, ToolCallDelta, ToolsRefused
from callboard.models.messages import MUST_CALL, with_instructions
from callboard_protocol import Done, Event, FinishReason, Message, Rewind, Status, ToolCallStart, UserMessage

MAX_CALLS_PER_ANSWER = 128
"""The maximum number of calls of one answer, or twice the turn's limit if that is more. Each call has a card and a row.
"""


async def run_tool_loop(
    context: TurnContext,
    list_tools: Callable[[], Sequence[Tool]],
    *,
    tool_format: Format | None = None,
    details: ProviderDetails | None = None,
) -> AsyncGenerator[Event, None]:
    """Run one turn and yield its events, the last one `Done`. `context.messages` is not changed.

    `list_tools` returns the tools for the next request: a call may add or remove some, for example of an MCP server.
    All calls of an answer are started before any of them runs; then they run concurrently. A call that fails gives the
    model an error, and the turn continues. If the model asks for more calls than `context.limits` allow, it is asked
    one last time, with the client's functions only, and the turn ends with `max_turns`; calls over an allowance get
    errors. The turn always has some text for the user. The calls of a refusal, or of an answer that the endpoint's
    filter cut, do not run.

    If an answer calls one of `context.functions`, which the client runs, the turn ends with `tool_calls` after the
    tools of that answer; a function with the name of a tool is not offered. If a call waits for its approval, the turn
    ends after the other calls, without `Done`. `context.unfinished` are calls without a result in the last round of the
    messages: they run before the model is asked. The model reads the messages that the user sends to the run in its
    next request; the turn ends when it has read them all. `details` are the provider details of the chat; the loop
    adds the details of this turn.

    Raises `ModelError`. Closing the generator closes the model's stream and cancels the tools.
    """
    turn = _LoopTurn(context, tool_format or Format("native"), details or ProviderDetails())
    calls = context.unfinished
    answer: ModelAnswer | None = None
    is_cut_short = False
    all_tools, client_functions = _offer_tools(context, list_tools())
    while True:
        if calls:
            async with aclosing(turn.run_round(calls, all_tools, answer, is_cut_short=is_cut_short)) as events:
                async for event in events:
                    yield event
            if turn.client_runs_calls or turn.calls_wait:
                break
            all_tools, client_functions = _offer_tools(context, list_tools())
        is_last = answer is not None and not calls
        messages = await turn.take_messages(is_last=is_last)
        for message in messages:
            yield message
        if is_last and not messages:
            break
        is_over_limit = turn.runner.is_over_limit
        # The client's functions are not counted by the limit, so they are offered even when it is reached.
        offered = client_functions if is_over_limit else all_tools
        async with aclosing(turn.ask(tuple(offered.values()))) as events:
            async for event in events:
                yield event
        answer = turn.answer
        made = [
            call
            for call in ([] if answer.reason in ("content_filter", "refusal") else answer.calls)
            if not is_over_limit or resolve_tool_name(call.name, all_tools) in client_functions
        ]
        calls = made[: turn.max_calls_per_answer]
        if left_out := len(made) - len(calls):
            yield Status(content=f"The model asked for {len(made)} calls at once; {left_out} were left out")
        is_cut_short = answer.reason == "length" and not left_out
    for event in turn.conclude():
        yield event


def _offer_tools(context: TurnContext, tools: Sequence[Tool]) -> tuple[dict[str, Tool], dict[str, Tool]]:
    """Return all tools for a request, and those that are functions of the client, both by name."""
    context.redaction.add(*(secret for tool in tools for secret in tool.secret_values))
    own: dict[str, Tool] = {tool.name: tool for tool in tools}
    functions: dict[str, Tool] = {one.name: one for one in context.functions if one.name not in own}
    return own | functions, functions


async def run_completion(context: RunContext) -> AsyncGenerator[Event, None]:
    """Ask for one answer without tools or reasoning, for background tasks: `Message`, `Usage` and `Done`.

    Raises `ModelError`.
    """
    turn = _LoopTurn(TurnContext.of(context), Format(), ProviderDetails())
    async with aclosing(turn.ask(())) as events:
        async for event in events:
            if isinstance(event, Message | Rewind):
                yield event
    for event in turn.conclude():
        # A background task gets no notice in place of a missing answer.
        if not isinstance(event, Message):
            yield event


class _LoopTurn:
    """The conversation of a turn, which grows with each round, and the tokens that the turn used."""

    def __init__(self, context: TurnContext, tool_format: Format, details: ProviderDetails) -> None:
        self.answer: ModelAnswer
        """The last answer of the model, set by `ask`."""
        self.client_runs_calls = False
        """Whether the model has called a function that the client runs."""
        self.calls_wait = False
        """Whether a call waits for its approval."""
        self._one_call = context.options.get("parallel_tool_calls") is False
        """Whether the client allows only one call in an answer."""
        self.max_calls_per_answer = (
            1 if self._one_call else max(MAX_CALLS_PER_ANSWER, 2 * context.limits.max_tool_calls)
        )
        self._events = EventBuffer()
        self.runner = CallRunner(self._events, context)
        self._context = context
        self._messages = list(context.messages)
        self._format = tool_format
        self._details = details
        self._usage: TokenUsage | None = None
        self._refused_tools: set[str] = set()

    async def ask(self, tools: Sequence[Tool]) -> AsyncGenerator[Event, None]:
        """Ask the model and yield the events of its answer; ask once more if its endpoint could not read a call.

        Raises `ModelMalformedCall` after the second such call, and `ModelAborted` if the answer ends with an error.
        """
        for is_last_try in (False, True):
            is_shown = False
            async with aclosing(self._ask_once(tools)) as events:
                async for event in events:
                    is_shown = True
                    yield event
            if is_last_try or not self.answer.is_malformed:
                break
            if is_shown:
                yield Rewind()
        for event in self.answer.closing_events(self._context.claim_tool_call_id):
            if isinstance(event, ToolCallStart):
                self._context.begun.add(event.tool_call_id)
            yield event

    async def _ask_once(self, tools: Sequence[Tool]) -> AsyncGenerator[Event, None]:
        reader = self._format.reader(tools, self._context.claim_tool_call_id, self._messages)
        self.answer = answer = ModelAnswer(reader, tools, self.max_calls_per_answer)
        async with closing_stream(self._context.model.stream(self._build_request(tools))) as stream:
            async for delta in stream:
                if isinstance(delta, ToolsRefused):
                    for name in sorted(delta.reasons.keys() - self._refused_tools):
                        yield Status(content=f"The tool {name} is not offered: the model's endpoint refuses it")
                    self._refused_tools.update(delta.reasons)
                if isinstance(delta, ToolCallDelta) and delta.name:
                    # Noted here and not at the end, because the stream may fail before its end.
                    self._format.note_native_call()
                for event in answer.feed(delta):
                    yield event
        last = answer.finish()
        self._format.note_calls_in_text(answer.calls)
        for event in last:
            yield event
        if answer.usage is not None:
            self._usage = answer.usage + (self._usage or TokenUsage())

    def _build_request(self, tools: Sequence[Tool]) -> ModelRequest:
        formatted = self._format.request(self._messages, tools, self._details.thoughts)
        options = self._context.options
        must_call = self._context.must_call and bool(tools)
        if tools and not formatted.tools:
            # The tools are described in words. A forced form of the answer would keep the model from writing a call.
            options = {name: value for name, value in options.items() if name != "response_format"}
            if must_call:
                formatted = replace(formatted, messages=with_instructions(formatted.messages, MUST_CALL))
                must_call = False
        return replace(
            formatted,
            messages=self._details.outgoing(formatted.messages),
            options=options,
            one_call=self._one_call and bool(tools),
            must_call=must_call,
        )

    async def run_round(
        self, calls: Sequence[ToolCall], tools: Mapping[str, Tool], answer: ModelAnswer | None, *, is_cut_short: bool
    ) -> AsyncGenerator[Event, None]:
        """Run the calls of `answer` and yield their events; then add the answer and the results to the conversation.

        If the client runs one of the calls, set `client_runs_calls` instead of adding them; if one waits, `calls_wait`.
        `answer` is None if the conversation already has it. `is_cut_short`: the model reached its token limit, so the
        last call may lack its arguments.
        """
        text_calls = self._context.approval.text_calls
        resolved = resolve_calls(
            calls,
            tools,
            self.runner.budget,
            self._context.redaction,
            text_calls=text_calls,
            is_cut_short=is_cut_short,
        )
        self._details.note_calls([call.call for call in resolved], answer.details if answer else {})
        running = asyncio.create_task(self.runner.run_round(resolved, is_counted=answer is None))
        async with aclosing(self._events.read(running)) as events:
            async for event in events:
                yield event
        ended = running.result()
        external = {call.id for call in resolved if isinstance(call, ResolvedCall) and call.is_external}
        self.client_runs_calls = bool(external)
        self.calls_wait = len(ended) + len(external) < len(resolved)
        if not (external or self.calls_wait):
            # The model reads the stored arguments, including the user's changes.
            shown = [
                replace(call, arguments_text=write_arguments(read_object(ended[call.id].start.tool_args)))
                if isinstance(call, ResolvedCall) and ended[call.id].is_changed
                else call
                for call in resolved
            ]
            text = answer.text if answer else ""
            match self._messages[-1:]:
                case [{"role": "assistant", "content": str(begun)} as last] if answer and "tool_calls" not in last:
                    # The client asked to continue this message, and some endpoints refuse two in a row.
                    self._messages.pop()
                    text = f"{begun}{text}"
                case _:
                    pass
            written, *results = round_messages(text, shown, [ended[call.id].result_text for call in shown])
            self._messages += [written, *results] if answer else results

    async def take_messages(self, *, is_last: bool) -> Sequence[UserMessage]:
        """Add the user's new messages to the conversation, and return them; see `TakeMessages`.

        `is_last`: the model's last answer has no calls. The messages follow it.
        """
        messages = await self._context.take_messages(is_last=is_last)
        if messages:
            added: list[ChatDict] = []
            if is_last:
                self._note_answer()
                added.append({"role": "assistant", "content": self.answer.text})
            added += ({"role": "user", "content": message.content} for message in messages)
            # As later turns have them.
            self._messages[-1:] = order_messages([*self._messages[-1:], *added])
        return messages

    def _note_answer(self) -> None:
        follows_calls = any(message["role"] == "tool" for message in self._messages[-1:])
        self._details.note_answer(self.answer.text, self.answer.details, follows_calls=follows_calls)

    def conclude(self) -> list[Event]:
        """Return the last events of the turn: a notice if the answer has no text, `Usage` if known, and `Done`.

        There are none if calls wait, because a server continues the turn later.
        """
        if self.calls_wait:
            return []
        events: list[Event] = []
        if self.client_runs_calls:
            reason: FinishReason = "tool_calls"
        else:
            answer = self.answer
            self._note_answer()
            reason, notice = answer.conclude(is_over_limit=self.runner.is_over_limit)
            if notice:
                events.append(Message(content=notice, refusal=reason == "refusal"))
        if self._usage is not None:
            events.append(self._usage.to_event())
        return [*events, Done(finish_reason=reason)]
