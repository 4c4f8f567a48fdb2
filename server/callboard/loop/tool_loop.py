"""The tool loop: ask the model, run the calls it asks for, tell it the results, ask again.

Does not know which format the model speaks (`callboard.formats` does) and keeps nothing:
what is to be remembered, the recorder of the run takes from the events.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from callboard.formats import (
    ArgumentsPiece,
    AutoFormat,
    ClaimId,
    Format,
    NativeFormat,
    Piece,
    Reader,
    ReasoningPiece,
    TextPiece,
    exchange,
    tool_meant,
)
from callboard.loop.limits import Allowance, Budget, Limits
from callboard.loop.round import Caller, plan, run_round
from callboard.models import ChatDict, ChatModel, Finish, ModelRequest, TokenUsage
from callboard.tools import Tool
from callboard_protocol import Done, Event, FinishReason, Message, Reasoning, ToolCallArgsDelta, Usage

LIMIT_REACHED = "I have used up the tool calls of this turn before I could finish. Ask me to go on, and I will."
CUT_OFF = "My answer was cut off before it began: the model used up the tokens it may write."
NOTHING_SAID = "The model ended its turn without an answer. Ask again, or put it in other words."


async def run_tool_loop(
    model: ChatModel,
    messages: Sequence[ChatDict],
    tools: Sequence[Tool],
    *,
    claim_id: ClaimId,
    tool_format: Format | None = None,
    limits: Limits | None = None,
    allowances: Sequence[Allowance] = (),
    caller: Caller | None = None,
    options: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Event, None]:
    """One turn as events, the last one `Done`; what `messages` holds is not changed.

    All calls of an answer are started before any runs, then run side by side. A call that
    fails in any way is told to the model and the turn goes on. Once the model has asked for
    more calls than `limits` allow, it is asked a last time without tools, and the turn ends
    with `max_turns`; beyond an allowance it gets errors. The user always gets some text.
    Raises `ModelError`; closing the generator, at any point, closes the model's stream and
    cancels the tools.
    """
    limits = limits or Limits()
    turn = _Turn(model, tool_format or NativeFormat(), list(messages), claim_id, options or {})
    budget = Budget(limits, allowances)
    by_name = {tool.name: tool for tool in tools}
    caller = caller or Caller()
    caller.redaction.add(*(secret for tool in tools for secret in tool.secret_values))
    for round_index in count():
        answer = _Answer()
        offered = () if budget.exceeded else tools
        async with aclosing(turn.ask(offered, answer)) as events:
            async for event in events:
                yield event
        calls = [] if budget.exceeded else answer.reader.calls()
        if not calls:
            break
        planned = plan(calls, by_name, budget, cut_short=answer.finish_reason == "length")
        results: dict[str, str] = {}
        running = run_round(
            planned,
            round_index=round_index,
            caller=caller,
            timeout_seconds=limits.tool_timeout_seconds,
            results=results,
        )
        async with aclosing(running):
            async for event in running:
                yield event
        made = [call.requested for call in planned]
        turn.messages += exchange("".join(answer.text), made, [results[call.id] for call in made])
    for event in turn.end(answer, limit_reached=budget.exceeded):
        yield event


async def run_completion(
    model: ChatModel, messages: Sequence[ChatDict], options: Mapping[str, Any] | None = None
) -> AsyncGenerator[Event, None]:
    """One answer without tools or reasoning, for background tasks: `Message`, `Usage` and `Done`.

    Raises `ModelError`.
    """
    turn = _Turn(model, AutoFormat(), list(messages), str, options or {})
    answer = _Answer()
    async with aclosing(turn.ask((), answer)) as events:
        async for event in events:
            if isinstance(event, Message):
                yield event
    for event in turn.end(answer, limit_reached=False):
        if not isinstance(event, Message):
            yield event


@dataclass(slots=True)
class _Answer:
    """One answer of the model, filled while it comes."""

    text: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: TokenUsage | None = None
    reader: Reader = field(init=False)


class _Turn:
    """The conversation as it grows, and what it cost."""

    def __init__(
        self,
        model: ChatModel,
        tool_format: Format,
        messages: list[ChatDict],
        claim_id: ClaimId,
        options: Mapping[str, Any],
    ) -> None:
        self.messages = messages
        self._model = model
        self._format = tool_format
        self._claim_id = claim_id
        self._options = options
        self._usage: TokenUsage | None = None

    async def ask(self, tools: Sequence[Tool], answer: _Answer) -> AsyncGenerator[Event, None]:
        """Asks once; fills `answer` and yields what the user can see of it."""
        answer.reader = reader = self._format.reader(tools, self._claim_id, self.messages)
        # While they are written it cannot be told which arguments are secret.
        known = [tool.name for tool in tools]
        unannounced = {tool.name for tool in tools if tool.secret_arguments}
        request = replace(self._format.request(self.messages, tools), options=self._options)
        async with aclosing(self._pieces(request, reader, answer)) as pieces:
            async for piece in pieces:
                match piece:
                    case TextPiece():
                        answer.text.append(piece.text)
                        yield Message(content=piece.text)
                    case ReasoningPiece():
                        yield Reasoning(content=piece.text)
                    case ArgumentsPiece():
                        # Without tools no call will follow: there is nothing to announce.
                        if tools and tool_meant(piece.name, known) not in unannounced:
                            yield ToolCallArgsDelta(tool_call_id=piece.call_id, tool_name=piece.name, delta=piece.text)
        if answer.usage is not None:
            self._usage = answer.usage + (self._usage or TokenUsage())

    async def _pieces(self, request: ModelRequest, reader: Reader, answer: _Answer) -> AsyncGenerator[Piece, None]:
        stream = self._model.stream(request)
        try:
            async for delta in stream:
                match delta:
                    case Finish():
                        answer.finish_reason = delta.reason
                    case TokenUsage():
                        # Some endpoints send the running total with every chunk: the last one counts.
                        answer.usage = delta
                    case _:
                        pass
                for piece in reader.feed(delta):
                    yield piece
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        for piece in reader.finish():
            yield piece

    def end(self, answer: _Answer, *, limit_reached: bool) -> list[Event]:
        """The last events: a text where the model left none, `Usage`, `Done`."""
        reason: FinishReason = "stop"
        notice = NOTHING_SAID
        if limit_reached:
            reason, notice = "max_turns", LIMIT_REACHED
        elif answer.finish_reason == "length":
            reason, notice = "length", CUT_OFF
        events: list[Event] = []
        if not "".join(answer.text).strip():
            events.append(Message(content=notice))
        if (usage := self._usage) is not None:
            events.append(usage_event(usage))
        return [*events, Done(finish_reason=reason)]


def usage_event(usage: TokenUsage) -> Usage:
    """What a turn cost, as its listeners are told."""
    return Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=usage.total_tokens)
