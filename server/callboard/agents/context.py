"""`RunContext`, the argument of every agent's `run`, and `TurnContext`, its form inside of the server."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from callboard._formats import FormatChoice
from callboard.agents.resolving import resolve_calls
from callboard.calls import Tool, ToolCall, ToolResult
from callboard.calls.call import CallContext
from callboard.calls.forms import ask_until_fitting
from callboard.calls.limits import Budget, Limits
from callboard.calls.runner import CallRunner, EventBuffer
from callboard.calls.tool import ClientTool
from callboard.errors import AgentError
from callboard.models import ChatDict, ChatModel
from callboard.observers import NO_OBSERVERS, RunObservers
from callboard_protocol import Event, InputRequest, User, UserMessage

OnOwnerLoss = Literal["continue", "end"]
"""Whether another server continues a run whose server stops, or the run ends."""


class TakeMessages(Protocol):
    """Returns the messages that the user has sent to the run since the last call, in order.

    The agent yields each one when it gives it to its model. With `is_last`, the run accepts no more messages if there
    are none; an agent that asks so until there are none leaves no message unread.
    """

    async def __call__(self, *, is_last: bool = False) -> Sequence[UserMessage]:
        """Return the messages."""
        ...


async def _take_nothing(*, is_last: bool = False) -> Sequence[UserMessage]:  # noqa: ARG001 - see `TakeMessages`
    return ()


@dataclass(frozen=True)
class RunContext:
    """The request that a run answers, and ways to call tools and to ask the user.

    `messages`: the conversation for the model, with stored tool calls and their results; `COMPACT_RESULTS` and
    `HISTORY_TOKENS` may shorten them.
    `model`: the server's default model. `limits`: the server's limits for a turn.
    `task`: the name of a background task of the client, which gets no tools.
    `options`: the client's parameters for the model (`temperature` …).
    `functions`: functions that the client offers and runs. To call one, the agent yields `ToolCallExternal` and ends
    the turn with `tool_calls`. If `must_call` is True, the turn must end with such a call.
    `openwebui_tools`: the tools of Open WebUI that the agent gets in this run; it may run them with `call`.
    `take_messages`: returns what the user says while the agent works, see `TakeMessages`.
    `claim_tool_call_id`: makes an id unique within the chat. An agent that yields the events of calls itself must pass
    each id to this function, so that events, store and model have the same id. The method `call` does this.
    """

    run_id: str
    messages: Sequence[ChatDict]
    claim_tool_call_id: Callable[[str], str]
    model: ChatModel
    chat_id: str | None = None
    message_id: str | None = None
    user: User | None = None
    task: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    functions: Sequence[ClientTool] = ()
    must_call: bool = False
    openwebui_tools: Sequence[Tool] = ()
    take_messages: TakeMessages = field(default=_take_nothing, repr=False)

    async def call(self, tool: Tool, arguments: Mapping[str, Any] | str, *, call_id: str = "") -> ToolResult:
        """Run a tool as an `Agent` does, and return its result; its `text` is for the model.

        The method checks the arguments, and asks the user if the tool or `CALLBOARD_CONFIRM_TOOLS` requires an
        approval. If the user changes the arguments, the text begins with a note about the change. Limits and timeouts
        apply. A parameter `context: ToolContext` of the tool is filled in. The start, steps and end of the call are
        shown and stored at once, so do not yield events for it. Calls may run concurrently (`asyncio.gather`).

        `arguments` are an object, or the JSON text of a model. `call_id` is the model's id of the call.
        Raises `ToolError` if the call fails (`ToolDenied`, `ToolTimeout`, `ToolLimit`, `InvalidArguments` …): give its
        message to the model, or let the error end the run. Raises `AgentError` if `tool` is not a `Tool` that can run
        here.
        """
        return await TurnContext.of(self).call(tool, arguments, call_id=call_id)

    async def ask(self, question: InputRequest) -> Any:
        """Ask the user and return the answer; None if no answer comes in time, or no user can be asked.

        If the answer does not fit the question's `schema` or `choices`, the question is asked again, with the reason.
        The answer False to a form means that the user declined. Raises `ValueError` if the schema is not flat, and
        `ToolNotAnswered` if the user answers again and again, and no answer fits.
        """
        return await TurnContext.of(self).ask(question)


async def _emit_nowhere(_: Event) -> None:
    """Drop an event: the default of `emit`, for a context without a run."""


@dataclass(frozen=True)
class TurnContext(CallContext, RunContext):
    """The context for `Agent`s and the adapters, with fields that are internal to the server.

    `emit`: records an event at once; other events are recorded when the agent yields them.
    `formats`: how the server's model is asked to write tool calls.
    `provider_details`: details that models sent with the chat's calls and answers, see `ProviderDetails`.
    `replaced`: the texts that a framework's filter has put in the place of results, by call id, and of the question, by
    its text. Later turns get them.
    `recall`: whether the prompt may include facts that skills have stored about the user.
    `observers`: the observers of requests to models.
    `calls_made` and `unfinished` are set only if another server has begun the turn. `calls_made`: the names of the
    tools of calls that have ended; they count against the limits. `unfinished`: the calls that an `Agent` runs again.
    `own_budget`: empty, or the budget of the calls made with `call`. It is a list, so that the first call makes the
    budget for all copies of the context.
    """

    formats: FormatChoice = field(default_factory=FormatChoice)
    provider_details: dict[str, ChatDict] = field(default_factory=dict, repr=False)
    replaced: dict[str, str] = field(default_factory=dict, repr=False)
    recall: bool = True
    observers: RunObservers = NO_OBSERVERS
    calls_made: Sequence[str] = ()
    unfinished: Sequence[ToolCall] = ()
    emit: Callable[[Event], Awaitable[None]] = field(default=_emit_nowhere, repr=False)
    own_budget: list[Budget] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, context: RunContext) -> "TurnContext":
        """Return the context of a run as a `TurnContext`; one that was made by hand gets default values."""
        if isinstance(context, cls):
            return context
        return cls(**{one.name: getattr(context, one.name) for one in fields(RunContext)})

    async def call(self, tool: Tool, arguments: Mapping[str, Any] | str, *, call_id: str = "") -> ToolResult:
        """Run a tool; see `RunContext.call`."""
        _check_runnable(tool)
        if not self.own_budget:
            self.own_budget.append(Budget(self.limits))
        self.redaction.add(*tool.secret_values)
        call = ToolCall(self.claim_tool_call_id(call_id), tool.name, arguments)
        calls = resolve_calls([call], {tool.name: tool}, self.own_budget[0], self.redaction)
        events = EventBuffer()
        work = asyncio.create_task(CallRunner(events, self).run_round(calls), name=f"call {tool.name} of {self.run_id}")
        async with aclosing(events.read(work)) as reading:
            async for event in reading:
                await self.emit(event)
        outcome = work.result()[call.id].outcome
        if isinstance(outcome, ToolResult):
            return outcome
        assert outcome is not None, "the runner sets it"
        raise outcome

    async def ask(self, question: InputRequest) -> Any:
        """Ask the user; see `RunContext.ask`."""
        if not self.approval.can_ask:
            return None

        async def send(asked: InputRequest) -> Any:
            await self.emit(asked)
            return await self.approval.answer_to(asked)

        return await ask_until_fitting(question, send)


def _check_runnable(tool: object) -> None:
    """Raise `AgentError` unless `RunContext.call` can run this tool."""
    if not isinstance(tool, Tool):
        raise AgentError(f"context.call takes a tool, not {tool!r:.80}: write @tool above its function.")
    if isinstance(tool, ClientTool):
        raise AgentError(f"The client runs its function {tool.name}: yield ToolCallExternal for the call.")
    if tool.is_method:
        raise AgentError(f"{tool.name} is a method without an instance: pass instance.{tool.name} to context.call.")
