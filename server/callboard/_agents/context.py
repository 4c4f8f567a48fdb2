"""The context that one run gives its agent, whichever kind of agent it is."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from callboard._agents.own_calls import OwnCalls
from callboard._redaction import Redaction
from callboard.calls import (
    Allowance,
    Approval,
    CallContext,
    ClientTool,
    Limits,
    Services,
    SourceNumbers,
    Spend,
    Tool,
    ToolCall,
    ToolResult,
    spend_nothing,
)
from callboard.errors import AgentError
from callboard.models import ChatDict, ChatModel
from callboard.observers import NO_OBSERVERS, RunObservers
from callboard_protocol import Event, InputRequest, User

if TYPE_CHECKING:
    from callboard._formats import FormatChoice

OnOwnerLoss = Literal["continue", "end"]
"""What becomes of an agent's run whose server is gone: another one goes on with it, or ends it."""


def check_on_owner_loss(agent_id: str, value: object) -> None:
    """Raise `AgentError` for what is no `OnOwnerLoss`."""
    if value not in get_args(OnOwnerLoss):
        raise AgentError(
            f"The agent '{agent_id}' cannot have on_owner_loss={value!r}: say 'continue', and another server goes on "
            "with a run whose own is gone, or 'end'."
        )


def _default_formats() -> "FormatChoice":
    from callboard._formats import FormatChoice

    return FormatChoice()


@dataclass(frozen=True, slots=True)
class RunContext:
    """The context that one run gives its agent: what was asked, by whom, and what the agent may do.

    `messages` is the conversation as the model should see it, stored tool calls and full results included. `model` is
    the server's default model, `task` a background task of the client (no tools then), `limits` the server's limits
    for a turn. `options` are the client's parameters for the model (`temperature` …). `functions` are those that the
    client offers: a call of one is no tool's to run, it is yielded as `ToolCallExternal` and the turn ends with
    `tool_calls`; with `must_call` the model may not end the turn without one.

    `claim_tool_call_id` makes an id unique within the chat. An agent that yields events of calls by itself passes each
    id through it before use, so that the events, the store and the model all hold the same one; `call` does so too.
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

    async def call(self, tool: Tool, arguments: Mapping[str, Any] | str, *, call_id: str = "") -> ToolResult:
        """Run a tool as the server runs those of its own agents, and return its result: `.text` is what a model reads.

        The arguments are checked, the user is asked where the tool or `CALLBOARD_CONFIRM_TOOLS` says so, limits and
        time-outs hold, `context: ToolContext` is filled in, and the call's start, steps and end are shown and stored
        at once. Yield no events for it. Calls may run side by side (`asyncio.gather`).

        `arguments` are an object, or JSON text as a model wrote it. `call_id` is the model's id of the call.
        Raises `ToolError` where the call failed (`ToolDenied`, `ToolTimeout`, `ToolLimit`, `InvalidArguments` …): show
        its words to the model, or let it end the run. Raises `AgentError` for what is no `Tool`.
        """
        return await TurnContext.of(self).call(tool, arguments, call_id=call_id)

    async def ask(self, question: InputRequest) -> Any:
        """Ask the user, and return the answer; None if none comes in time, or nobody can be asked."""
        return await TurnContext.of(self).ask(question)


async def _emit_nowhere(_: Event) -> None:
    """Send an event nowhere: the context belongs to no run."""


@dataclass(frozen=True, slots=True)
class TurnContext(RunContext):
    """A run's context with what the server's own agents and adapters work with, beside what an author may use.

    `emit` records an event at once, beside those that the agent yields. `begun` receives the ids of the calls that a
    `CallRunner` has begun. `formats` says how the server's model is asked to write tool calls. `approval` says which
    tools ask the user first, and who asks. `services` is for the tools that come with the server. `redaction` knows
    what no event, row, log or model may be told; tools add to it. `left_running` receives the ids of calls whose tools
    go on though the run was cancelled. `provider_details` holds what models sent beside the chat's calls and answers,
    as `ProviderDetails` has it; it receives that of a new call before it starts.
    `spend_call` counts a call of the user's before it runs, and raises `ToolLimit` where none is left for today.
    `recall`: what skills know of the user may go into the prompt. `observers` are told of requests to models.
    New sources are numbered after `max_source_number`, the highest in the history; −1 where
    there is none. Of a turn that began on a server that is gone, `calls_made` are the tools of the calls that have
    ended, which `limits` count, and `unfinished` may run again, for an agent that is Callboard's own.
    """

    max_source_number: int = -1
    formats: "FormatChoice" = field(default_factory=_default_formats)
    approval: Approval = field(default_factory=Approval)
    services: Services | None = field(default=None, repr=False)
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    left_running: set[str] = field(default_factory=set, repr=False)
    provider_details: dict[str, ChatDict] = field(default_factory=dict, repr=False)
    recall: bool = True
    spend_call: Spend = spend_nothing
    observers: RunObservers = NO_OBSERVERS
    calls_made: Sequence[str] = ()
    unfinished: Sequence[ToolCall] = ()
    agent_id: str = ""
    emit: Callable[[Event], Awaitable[None]] = field(default=_emit_nowhere, repr=False)
    begun: set[str] = field(default_factory=set, repr=False)
    own_calls: OwnCalls = field(default_factory=OwnCalls, repr=False)

    @classmethod
    def of(cls, context: RunContext) -> "TurnContext":
        """Return the whole context of a run; of one that was made by hand, the same with nothing else in it."""
        if isinstance(context, cls):
            return context
        return cls(**{one.name: getattr(context, one.name) for one in fields(RunContext)})

    def make_call_context(
        self,
        agent_id: str,
        confirm: Sequence[str] = (),
        limits: Limits | None = None,
        allowances: Sequence[Allowance] = (),
    ) -> CallContext:
        """Return the context of the turn's calls. `confirm` are the agent's own patterns of tools that ask first."""
        return CallContext(
            self.chat_id,
            self.user,
            SourceNumbers(self.max_source_number),
            agent_id,
            self.services,
            replace(self.approval, patterns=(*self.approval.patterns, *confirm)),
            redaction=self.redaction,
            left_running=self.left_running,
            spend=self.spend_call,
            begun=self.begun,
            limits=limits or self.limits,
            allowances=allowances,
        )

    async def call(self, tool: Tool, arguments: Mapping[str, Any] | str, *, call_id: str = "") -> ToolResult:
        """Run a tool; see `RunContext.call`."""
        return await self.own_calls.run(self, tool, arguments, call_id)

    async def ask(self, question: InputRequest) -> Any:
        """Ask the user; see `RunContext.ask`."""
        if not self.approval.can_ask:
            return None
        await self.emit(question)
        return await self.approval.answer_to(question)
