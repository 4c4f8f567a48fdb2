"""The tool loop: ask the model, run the calls of its answer, give it the results, ask again.

The format of the model's calls is the business of `callboard._formats`. The loop stores nothing: the recorder of the
run stores the events.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from callboard._formats import (
    ArgumentsPiece,
    AutoFormat,
    Format,
    NativeFormat,
    Piece,
    ProviderDetails,
    ReasoningPiece,
    TextPiece,
    round_messages,
    tool_meant,
)
from callboard._formats.transcript import with_instructions
from callboard.agents.answer import Answer
from callboard.agents.context import RunContext, TurnContext
from callboard.agents.resolution import resolve_calls
from callboard.calls import CallRunner, ClientTool, EventBuffer, ResolvedCall, Tool, ToolCall
from callboard.calls.call import read_object, write_arguments
from callboard.models import (
    ModelRequest,
    TokenUsage,
)
from callboard_protocol import (
    Done,
    Event,
    FinishReason,
    Message,
    Reasoning,
    Rewind,
    Status,
    ToolCallArgsDelta,
    ToolCallStart,
)

MAX_CALLS_PER_ANSWER = 128
"""The calls of one answer that are run, or twice the turn's limit if that is more; each has a card and a row."""

MUST_CALL = "Do not answer in text: your answer must be a call of one of these tools."


async def run_tool_loop(
    context: TurnContext,
    tools: Sequence[Tool],
    *,
    tool_format: Format | None = None,
    details: ProviderDetails | None = None,
) -> AsyncGenerator[Event, None]:
    """Run one turn and yield its events, the last one `Done`. `context.messages` is not changed.

    All calls of an answer are started before any of them runs; then they run concurrently. A call that fails gives the
    model an error, and the turn continues. If the model asks for more calls than `context.limits` allow, it is asked
    one last time, without tools, and the turn ends with `max_turns`; calls over an allowance get errors. The user
    always gets some text. No call runs of a refusal, or of an answer that the endpoint's filter cut.

    If an answer calls one of `context.functions`, which the client runs, the turn ends with `tool_calls` after the
    tools of that answer; a function with the name of a tool is not offered. `context.unfinished` are calls of the last
    round of the messages that have no result yet: they run before the model is asked. `details` are the provider
    details of the chat; the details of this turn are added.

    Raises `ModelError`. Closing the generator closes the model's stream and cancels the tools.
    """
    runner_events = EventBuffer()
    runner = CallRunner(runner_events, context)
    context.redaction.add(*(secret for tool in tools for secret in tool.secret_values))
    turn = _Turn(context, tool_format or NativeFormat(), details or ProviderDetails())
    turn.max_calls_per_answer = 1 if turn.one_call else max(MAX_CALLS_PER_ANSWER, 2 * context.limits.max_tool_calls)
    own: dict[str, Tool] = {tool.name: tool for tool in tools}
    external = {function.name: function for function in context.functions if function.name not in own}
    by_name = own | external
    round_ = _Round(None, context.unfinished)
    while True:
        if round_.calls:
            async with aclosing(turn.run_round(round_, by_name, runner, runner_events)) as events:
                async for event in events:
                    yield event
        if turn.is_handed_over:
            break
        # The client's functions are not counted by the limit, so they are offered even when it is reached.
        offered = external if runner.is_over_limit else by_name
        async with aclosing(turn.ask(tuple(offered.values()))) as events:
            async for event in events:
                yield event
        answer = turn.answer
        made = answer.calls()
        if runner.is_over_limit:
            made = [call for call in made if tool_meant(call.name, by_name) in external]
        if not made:
            break
        kept = made[: turn.max_calls_per_answer]
        if left_out := len(made) - len(kept):
            yield Status(content=f"The model asked for {len(made)} calls at once; {left_out} were left out")
        is_cut_short = answer.reason == "length" and not left_out
        round_ = _Round("".join(answer.text), kept, answer.details, is_cut_short)
    for event in turn.conclude(is_over_limit=runner.is_over_limit):
        yield event


async def run_completion(context: RunContext) -> AsyncGenerator[Event, None]:
    """Ask for one answer without tools or reasoning, for background tasks: `Message`, `Usage` and `Done`.

    Raises `ModelError`.
    """
    turn = _Turn(TurnContext.of(context), AutoFormat(), ProviderDetails())
    async with aclosing(turn.ask(())) as events:
        async for event in events:
            if isinstance(event, Message | Rewind):
                yield event
    reason, _ = turn.answer.conclude()
    for event in turn.end(reason):
        yield event


@dataclass(frozen=True, slots=True)
class _Round:
    """The calls of one answer, with the answer's text and details; `text` is None if the messages have the answer.

    `is_cut_short`: the model reached its token limit, so the last call may lack its arguments.
    """

    text: str | None
    calls: Sequence[ToolCall]
    details: Mapping[str, Any] = field(default_factory=dict)
    is_cut_short: bool = False


class _Turn:
    """The conversation of a turn, which grows with each round, and the tokens that the turn used."""

    def __init__(self, context: TurnContext, tool_format: Format, details: ProviderDetails) -> None:
        self.answer: Answer
        """The last answer of the model, set by `ask`."""
        self.is_handed_over = False
        """Whether the model has called a function that the client runs."""
        self.max_calls_per_answer = MAX_CALLS_PER_ANSWER
        self._context = context
        self._messages = list(context.messages)
        self._format = tool_format
        self._details = details
        self._usage: TokenUsage | None = None

    @property
    def one_call(self) -> bool:
        """Whether the client wants no more than one call in an answer."""
        return self._context.options.get("parallel_tool_calls") is False

    async def ask(self, tools: Sequence[Tool]) -> AsyncGenerator[Event, None]:
        """Ask the model and yield the events of its answer; ask again if the endpoint could not read the call.

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
        self.answer.raise_for_failure()
        for event in self.answer.closing_events(self._context.claim_tool_call_id):
            if isinstance(event, ToolCallStart):
                self._context.begun.add(event.tool_call_id)
            yield event

    async def _ask_once(self, tools: Sequence[Tool]) -> AsyncGenerator[Event, None]:
        reader = self._format.reader(tools, self._context.claim_tool_call_id, self._messages)
        self.answer = answer = Answer(reader)
        # The call of a client's function has no start event, and half-written arguments cannot be searched for secrets.
        unannounced = {tool.name for tool in tools if isinstance(tool, ClientTool) or tool.secret_arguments}
        known = [tool.name for tool in tools]
        announced: set[str] = set()
        async with aclosing(self._read_pieces(self._build_request(tools), answer)) as pieces:
            async for piece in pieces:
                match piece:
                    case TextPiece():
                        answer.text.append(piece.text)
                        yield Message(content=piece.text)
                    case ReasoningPiece():
                        yield Reasoning(content=piece.text)
                    case ArgumentsPiece():
                        # Calls that will not run are not announced: those without tools and those over the maximum.
                        is_shown = bool(tools) and tool_meant(piece.name, known) not in unannounced
                        if is_shown and (piece.call_id in announced or len(announced) < self.max_calls_per_answer):
                            announced.add(piece.call_id)
                            yield ToolCallArgsDelta(tool_call_id=piece.call_id, tool_name=piece.name, delta=piece.text)
        if answer.usage is not None:
            self._usage = answer.usage + (self._usage or TokenUsage())

    async def _read_pieces(self, request: ModelRequest, answer: Answer) -> AsyncGenerator[Piece, None]:
        stream = self._context.model.stream(request)
        try:
            async for delta in stream:
                answer.take(delta)
                for piece in answer.reader.feed(delta):
                    yield piece
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        for piece in answer.reader.finish():
            yield piece

    def _build_request(self, tools: Sequence[Tool]) -> ModelRequest:
        formatted = self._format.request(self._details.with_thoughts(self._messages), tools)
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
            one_call=self.one_call and bool(tools),
            must_call=must_call,
        )

    async def run_round(
        self, round_: _Round, tools: Mapping[str, Tool], runner: CallRunner, runner_events: EventBuffer
    ) -> AsyncGenerator[Event, None]:
        """Run the calls of a round and yield their events; then add the answer and the results to the conversation.

        If the client runs one of the calls, set `is_handed_over` instead of adding them.
        """
        text_calls = runner.approval.text_calls
        made = resolve_calls(round_.calls, tools, runner.budget, text_calls=text_calls, cut_short=round_.is_cut_short)
        self._details.note_calls([one.call for one in made], round_.details)
        running = asyncio.create_task(runner.run_round(made))
        async with aclosing(runner_events.read(running)) as events:
            async for event in events:
                yield event
        ended = running.result()
        self.is_handed_over = any(isinstance(one, ResolvedCall) and one.is_external for one in made)
        if not self.is_handed_over:
            # The model is told the arguments as they are stored, also if the user has changed them.
            made = [
                replace(one, arguments_text=write_arguments(read_object(ended[one.id].start.tool_args)))
                if isinstance(one, ResolvedCall) and ended[one.id].is_changed
                else one
                for one in made
            ]
            answer, *results = round_messages(round_.text or "", made, [ended[call.id].result_text for call in made])
            self._messages += results if round_.text is None else [answer, *results]

    def conclude(self, *, is_over_limit: bool) -> list[Event]:
        """Return the last events of a turn that ends with the last answer, or waits for results of the client."""
        if self.is_handed_over:
            return self.end("tool_calls")
        answer = self.answer
        follows_calls = self._messages[-1]["role"] == "tool"
        self._details.note_answer("".join(answer.text), answer.details, follows_calls=follows_calls)
        reason, notice = answer.conclude(is_over_limit=is_over_limit)
        return self.end(reason, notice)

    def end(self, reason: FinishReason, notice: str = "") -> list[Event]:
        """Return the last events: the notice, `Usage` if the model reported any, `Done`."""
        events: list[Event] = [Message(content=notice, refusal=reason == "refusal")] if notice else []
        if self._usage is not None:
            events.append(self._usage.to_event())
        return [*events, Done(finish_reason=reason)]
