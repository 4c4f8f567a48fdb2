"""The tool loop: ask the model, run the calls it asks for, tell it the results, ask again.

Does not know which format the model speaks (`callboard._formats` does) and keeps nothing:
what is to be remembered, the recorder of the run takes from the events.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from callboard._agents.answer import LIMIT_REACHED, NOTHING_SAID, Answer
from callboard._agents.resolution import resolve_calls
from callboard._formats import (
    ArgumentsPiece,
    AutoFormat,
    ClaimId,
    Format,
    NativeFormat,
    Piece,
    ProviderDetails,
    Reader,
    ReasoningPiece,
    TextPiece,
    exchange,
    tool_meant,
)
from callboard._formats.transcript import with_instructions
from callboard.calls import (
    Allowance,
    CallContext,
    CallRunner,
    ClientTool,
    EventBuffer,
    Limits,
    ResolvedCall,
    Tool,
    ToolCall,
)
from callboard.models import (
    ChatDict,
    ChatModel,
    Finish,
    MessageDetails,
    ModelRequest,
    PictureDelta,
    RefusalDelta,
    TokenUsage,
    merge_details,
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
    Usage,
)

__all__ = ["LIMIT_REACHED", "NOTHING_SAID", "run_completion", "run_tool_loop", "usage_event"]

MAX_CALLS_PER_ANSWER = 128
"""Calls of one answer that are looked at, or twice the turn's limit where that is more: each has a card and a row."""

MUST_CALL = "Do not answer in text: your answer must be a call of one of these tools."


async def run_tool_loop(
    model: ChatModel,
    messages: Sequence[ChatDict],
    tools: Sequence[Tool],
    *,
    claim_id: ClaimId,
    tool_format: Format | None = None,
    limits: Limits | None = None,
    allowances: Sequence[Allowance] = (),
    context: CallContext | None = None,
    options: Mapping[str, Any] | None = None,
    functions: Sequence[ClientTool] = (),
    must_call: bool = False,
    unfinished: Sequence[ToolCall] = (),
    details: ProviderDetails | None = None,
) -> AsyncGenerator[Event, None]:
    """Play one turn as events, the last one `Done`; what `messages` holds is not changed.

    All calls of an answer are started before any runs, then run side by side. A call that
    fails in any way is told to the model and the turn goes on. Once the model has asked for
    more calls than `limits` allow, it is asked a last time without tools, and the turn ends
    with `max_turns`; beyond an allowance it gets errors. The user always gets some text.
    Of an answer that the endpoint's filter cut or that is a refusal no call runs.
    `functions` are the client's: where an answer calls one, the tools that it calls beside it are
    run, and the turn ends with `tool_calls`. A function named as a tool is left out. With the
    option `parallel_tool_calls` False no more than the first call of an answer is made.
    `unfinished` are calls of the last round of `messages` that have no result there: they are run before the model is
    asked. `details` is what the chat's models sent beside their calls; it receives that of this turn.
    Raises `ModelError`; closing the generator, at any point, closes the model's stream and
    cancels the tools.
    """
    limits = limits or Limits()
    context = context or CallContext()
    one_call = (options or {}).get("parallel_tool_calls") is False
    max_calls_per_answer = 1 if one_call else max(MAX_CALLS_PER_ANSWER, 2 * limits.max_tool_calls)
    turn = _Turn(
        list(messages),
        model,
        tool_format or NativeFormat(),
        claim_id,
        options or {},
        max_calls_per_answer=max_calls_per_answer,
        must_call=must_call,
        one_call=one_call,
        details=details or ProviderDetails(),
        begun=context.begun,
    )
    buffer = EventBuffer()
    runner = CallRunner(buffer, context, limits, allowances)
    own = {tool.name for tool in tools}
    external = {function.name: function for function in functions if function.name not in own}
    by_name: dict[str, Tool] = {tool.name: tool for tool in tools} | external
    context.redaction.add(*(secret for tool in tools for secret in tool.secret_values))
    calls = unfinished
    text: str | None = None
    is_cut_short = False
    answer = Answer()
    while True:
        if calls:
            made = turn.run_round(text, calls, by_name, runner, buffer, answer.details, cut_short=is_cut_short)
            async with aclosing(made) as events:
                async for event in events:
                    yield event
        if turn.is_handed_over:
            break
        answer = Answer()
        # Functions cost no executions here: who has used those up may still hand over.
        offered = external if runner.is_over_limit else by_name
        async with aclosing(turn.ask(tuple(offered.values()), answer)) as events:
            async for event in events:
                yield event
        asked_for = answer.calls()
        if runner.is_over_limit:
            asked_for = [call for call in asked_for if tool_meant(call.name, by_name) in external]
        if not asked_for:
            break
        calls = asked_for[:max_calls_per_answer]
        text = "".join(answer.text)
        if left_out := len(asked_for) - len(calls):
            yield Status(content=f"The model asked for {len(asked_for)} calls at once; {left_out} were left out")
        is_cut_short = answer.reason == "length" and not left_out
    for event in turn.conclude(answer, is_over_limit=runner.is_over_limit):
        yield event


async def run_completion(
    model: ChatModel, messages: Sequence[ChatDict], options: Mapping[str, Any] | None = None
) -> AsyncGenerator[Event, None]:
    """Ask for one answer without tools or reasoning, for background tasks: `Message`, `Usage` and `Done`.

    Raises `ModelError`.
    """
    turn = _Turn(list(messages), model, AutoFormat(), str, options or {})
    answer = Answer()
    async with aclosing(turn.ask((), answer)) as events:
        async for event in events:
            if isinstance(event, Message | Rewind):
                yield event
    reason, _ = answer.conclude()
    for event in turn.end(reason):
        yield event


@dataclass(slots=True)
class _Turn:
    """The conversation as it grows, how its model is asked, and what it cost."""

    messages: list[ChatDict]
    model: ChatModel
    tool_format: Format
    claim_id: ClaimId
    options: Mapping[str, Any]
    max_calls_per_answer: int = MAX_CALLS_PER_ANSWER
    must_call: bool = False
    one_call: bool = False
    usage: TokenUsage | None = None
    details: ProviderDetails = field(default_factory=ProviderDetails)
    begun: set[str] = field(default_factory=set)
    is_handed_over: bool = False

    async def ask(self, tools: Sequence[Tool], answer: Answer) -> AsyncGenerator[Event, None]:
        """Ask, and once more for a call that the endpoint cannot read; fill `answer` and yield what is seen of it.

        Raises `ModelMalformedCall` for the second such call, and `ModelAborted` for an answer that ends as an error.
        """
        is_shown = False
        async with aclosing(self._ask_once(tools, answer)) as events:
            async for event in events:
                is_shown = True
                yield event
        if answer.is_malformed:
            if is_shown:
                yield Rewind()
            answer.clear()
            async with aclosing(self._ask_once(tools, answer)) as events:
                async for event in events:
                    yield event
        answer.raise_for_failure()
        for event in answer.tell_rest(self.claim_id):
            if isinstance(event, ToolCallStart):
                self.begun.add(event.tool_call_id)
            yield event

    async def _ask_once(self, tools: Sequence[Tool], answer: Answer) -> AsyncGenerator[Event, None]:
        reader = self.tool_format.reader(tools, self.claim_id, self.messages)
        answer.reader = reader
        # A function's call has no start, and while arguments are written it cannot be told which are secret.
        unannounced = {tool.name for tool in tools if isinstance(tool, ClientTool) or tool.secret_arguments}
        known = [tool.name for tool in tools]
        announced: set[str] = set()
        request = self._request(tools)
        async with aclosing(self._pieces(request, reader, answer)) as pieces:
            async for piece in pieces:
                match piece:
                    case TextPiece():
                        answer.text.append(piece.text)
                        yield Message(content=piece.text)
                    case ReasoningPiece():
                        yield Reasoning(content=piece.text)
                    case ArgumentsPiece():
                        # Without tools no call will follow, nor past the bound: there is nothing to announce.
                        is_shown = bool(tools) and tool_meant(piece.name, known) not in unannounced
                        if is_shown and (piece.call_id in announced or len(announced) < self.max_calls_per_answer):
                            announced.add(piece.call_id)
                            yield ToolCallArgsDelta(tool_call_id=piece.call_id, tool_name=piece.name, delta=piece.text)
        if answer.usage is not None:
            self.usage = answer.usage + (self.usage or TokenUsage())

    async def run_round(
        self,
        text: str | None,
        calls: Sequence[ToolCall],
        tools: Mapping[str, Tool],
        runner: CallRunner,
        buffer: EventBuffer,
        message: Mapping[str, Any],
        *,
        cut_short: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Run the calls of one answer, and yield their events; then the conversation has the answer and their outcomes.

        `text`: the words of the answer, None if the conversation has the answer already. `message`: the details that
        came with it. If the client is to run one of the calls, the turn `is_handed_over` instead.
        """
        made = resolve_calls(calls, tools, runner.budget, text_calls=runner.approval.text_calls, cut_short=cut_short)
        self.details.note_calls([one.call for one in made], message)
        running = asyncio.create_task(runner.run_round(made))
        try:
            async with aclosing(buffer.read(running)) as events:
                async for event in events:
                    yield event
        finally:
            running.cancel()
            await asyncio.wait({running})
        ended = running.result()
        self.is_handed_over = any(isinstance(one, ResolvedCall) and one.is_external for one in made)
        if not self.is_handed_over:
            answer, *results = exchange(text or "", made, [ended[call.id].result_text for call in made])
            self.messages += results if text is None else [answer, *results]

    def _request(self, tools: Sequence[Tool]) -> ModelRequest:
        request = self._put_in_words(tools)
        return replace(request, messages=self.details.outgoing(request.messages))

    def _put_in_words(self, tools: Sequence[Tool]) -> ModelRequest:
        request = replace(
            self.tool_format.request(self.details.with_thoughts(self.messages), tools),
            options=self.options,
            one_call=self.one_call and bool(tools),
        )
        if not tools:
            return request
        is_asked_in_words = not request.tools
        if is_asked_in_words and "response_format" in self.options:
            # An endpoint that holds the model to a form of answer keeps it from writing a call.
            options = {name: value for name, value in self.options.items() if name != "response_format"}
            request = replace(request, options=options)
        if not self.must_call:
            return request
        if is_asked_in_words:
            return replace(request, messages=with_instructions(request.messages, MUST_CALL))
        return replace(request, must_call=True)

    async def _pieces(self, request: ModelRequest, reader: Reader, answer: Answer) -> AsyncGenerator[Piece, None]:
        stream = self.model.stream(request)
        try:
            async for delta in stream:
                match delta:
                    case Finish():
                        answer.finish = delta
                    case RefusalDelta():
                        answer.refusal.append(delta.text)
                    case PictureDelta():
                        answer.pictures.append(delta.url)
                    case TokenUsage():
                        # Some endpoints send the running total with every chunk: the last one counts.
                        answer.usage = delta
                    case MessageDetails():
                        before = answer.details
                        answer.details = (
                            {**before, **delta.fields} if delta.is_whole else merge_details(before, delta.fields)
                        )
                    case _:
                        pass
                for piece in reader.feed(delta):
                    yield piece
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        for piece in reader.finish():
            yield piece

    def conclude(self, answer: Answer, *, is_over_limit: bool) -> list[Event]:
        """Return the last events of a turn that ends with this answer, or waits for what the client is to run."""
        if self.is_handed_over:
            return self.end("tool_calls")
        follows_calls = self.messages[-1]["role"] == "tool"
        self.details.note_answer("".join(answer.text), answer.details, follows_calls=follows_calls)
        reason, notice = answer.conclude(is_over_limit=is_over_limit)
        return self.end(reason, notice)

    def end(self, reason: FinishReason, notice: str = "") -> list[Event]:
        """Return the last events: the notice, `Usage` where the model told of any, `Done`."""
        events: list[Event] = [Message(content=notice, refusal=reason == "refusal")] if notice else []
        if self.usage is not None:
            events.append(usage_event(self.usage))
        return [*events, Done(finish_reason=reason)]


def usage_event(usage: TokenUsage) -> Usage:
    """Return what a turn cost, as its listeners are told."""
    tokens = asdict(usage)
    del tokens["cost"]
    return Usage(**tokens)
