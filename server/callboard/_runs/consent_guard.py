"""The guard of calls that an agent shows by events of its own: nobody was asked about them, and no limit held."""

from functools import lru_cache

import structlog

from callboard.calls import Approval
from callboard.errors import AgentError
from callboard_protocol import Event, ToolCallComplete, ToolCallError, ToolCallStart

_log = structlog.get_logger(__name__)


class ConsentGuard:
    """Refuses calls that the server's settings put behind the user's consent, unless a `CallRunner` has begun them.

    Such an event ends the run. An agent that yields the start of a call before it runs the tool, as the protocol has
    it, never runs it then. Of other tools the log warns, once for each: limits, time-outs and quotas do not hold.
    """

    def __init__(self, agent_id: str, approval: Approval, begun: set[str]) -> None:
        self._agent_id = agent_id
        self._approval = approval
        self._begun = begun
        self._shown: set[str] = set()

    def check(self, event: Event) -> None:
        """Raise `AgentError` for the first event of a call that needs the user's consent and did not ask for it."""
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
                f"The agent '{self._agent_id}' shows a call of '{name}' by events of its own, and this server asks the "
                f"user before that tool runs (CALLBOARD_CONFIRM_TOOLS). Run it by `await context.call({name}, …)`, "
                "which asks."
            )
        _warn(self._agent_id, name)


@lru_cache(maxsize=1000)
def _warn(agent_id: str, tool_name: str) -> None:
    _log.warning(
        "call_outside_consent",
        agent=agent_id,
        tool=tool_name,
        advice="run it by `await context.call(tool, arguments)`, for which consent, limits and time-outs hold",
    )
