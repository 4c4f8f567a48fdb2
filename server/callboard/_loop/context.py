"""The context that one run gives its agent, whichever kind of agent it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from callboard._redaction import Redaction
from callboard._tools import ClientTool, Services
from callboard.calls import Approval, Limits, Spend, spend_nothing
from callboard.errors import AgentError
from callboard.models import ChatDict, ChatModel
from callboard.observers import NO_OBSERVERS, RunObservers
from callboard_protocol import User

if TYPE_CHECKING:
    from callboard._formats import FormatChoice, RequestedCall

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
    """The context that one run gives its agent.

    `messages` is the conversation as the model should see it, stored tool calls and full
    results included. `claim_tool_call_id` makes an id unique within the chat: an agent that
    sends its own ids to a model passes each through it before use, so that the events, the
    store and the model all hold the same one. `model` is the server's default model, `task`
    a background task of the client (no tools then), `limits` the server's limits for a turn,
    `formats` how its model is asked to write tool calls. `approval` says which tools ask the user
    first, and `approval.answer_to` waits for the answer to an `InputRequest` that the agent
    yields. `services` is for the tools that come with the server. `redaction` knows what no event, row,
    log or model may be told; tools add to it. `left_running` receives the ids of calls whose tools go on
    though the run was cancelled. `provider_details` holds what models sent beside the chat's calls and answers, as
    `ProviderDetails` has it; it receives that of a new call before it starts.
    `spend_call` counts a call of the user's before it runs, and raises `ToolLimit` where none is left for today.
    `recall`: what skills know of the user may go into the prompt. `observers` are told of requests to models.
    `options` are the client's parameters for the model (`temperature` …). `functions` are those that
    the client offers: a call of one is no tool's to run, it is yielded as `ToolCallExternal` and the
    turn ends with `tool_calls`; with `must_call` the model may not end the turn without one.
    New sources are numbered after `max_source_number`, the highest in the history; −1 where
    there is none. Of a turn that began on a server that is gone, `calls_made` are the tools of the calls that have
    ended, which `limits` count, and `unfinished` may run again, for an agent that is Callboard's own.
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
    max_source_number: int = -1
    limits: Limits = field(default_factory=Limits)
    formats: "FormatChoice" = field(default_factory=_default_formats)
    approval: Approval = field(default_factory=Approval)
    services: Services | None = field(default=None, repr=False)
    functions: Sequence[ClientTool] = ()
    must_call: bool = False
    redaction: Redaction = field(default_factory=Redaction, repr=False)
    left_running: set[str] = field(default_factory=set, repr=False)
    provider_details: dict[str, ChatDict] = field(default_factory=dict, repr=False)
    recall: bool = True
    spend_call: Spend = spend_nothing
    observers: RunObservers = NO_OBSERVERS
    calls_made: Sequence[str] = ()
    unfinished: "Sequence[RequestedCall]" = ()
