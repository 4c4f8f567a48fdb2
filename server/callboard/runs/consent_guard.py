"""Detects calls that an agent runs without `context.call`: no approval was asked for them, and no limit applied."""

from functools import lru_cache

import structlog

from callboard.calls.approval import Approval
from callboard.errors import AgentError
from callboard_protocol import Event, ToolCallComplete, ToolCallError, ToolCallStart

_log = structlog.get_logger(__name__)


class ConsentGuard:
    """Ends the run if an agent shows a call that needs the user's approval and was not started by a `CallRunner`.

    An agent that yields the start of a call before it runs the tool, as the protocol requires, then never runs the
    tool. For calls of other tools, the server logs one warning for each tool, because limits, time-outs and quotas do
    not apply to them.
    """

    def __init__(self, agent_id: str, approval: Approval, begun: set[str]) -> None:
        self._agent_id = agent_id
        self._approval = approval
        self._begun = begun
        self._shown: set[str] = set()

    def check(self, event: Event) -> None:
        """Raise `AgentError` for the first event of a call that needs the user's approval and did not ask for it."""
        match event:
            case ToolCallStart():
                is_first = True
            case ToolCallComplete() | ToolCallError():
                is_first = event.tool_call_id not in self._shown
            case _:
                return
        if not is_first or event.tool_call_id in self._begun:
            return
        self._shown.add(event.tool_call_id)
        name = event.tool_name or "unknown"
        if self._approval.names(name):
            raise AgentError(
                f"The agent '{self._agent_id}' yielded events of a call of '{name}', which needs the user's approval "
                f"on this server (CALLBOARD_CONFIRM_TOOLS). Run it with `await context.call({name}, …)`, which asks "
                "the user."
            )
        _warn(self._agent_id, name)


@lru_cache(maxsize=1000)
def _warn(agent_id: str, tool_name: str) -> None:
    _log.warning(
        "call_outside_consent",
        agent=agent_id,
        tool=tool_name,
        advice="run it with `await context.call(tool, arguments)`, which applies approvals, limits and timeouts",
    )
