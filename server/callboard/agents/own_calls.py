"""Tool calls that an agent written by hand makes with `context.call`; they use the same `CallRunner` as all others."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from callboard.calls import Budget, CallRunner, ClientTool, EventBuffer, Tool, ToolCall, ToolResult
from callboard.errors import AgentError

if TYPE_CHECKING:
    from callboard.agents.context import TurnContext


class OwnCalls:
    """Runs the calls of one turn, which share the turn's limits and may run concurrently."""

    def __init__(self) -> None:
        self._budget: Budget | None = None

    async def run(
        self, turn: "TurnContext", tool: Tool, arguments: Mapping[str, Any] | str, call_id: str
    ) -> ToolResult:
        """Run a call and return its result; see `RunContext.call`."""
        # Imported here, so that the file of an agent loads fast. A server has imported it before its first run.
        from callboard.agents.resolution import resolve_calls

        _refuse_other(tool)
        if self._budget is None:
            self._budget = Budget(turn.limits)
        turn.redaction.add(*tool.secret_values)
        call = ToolCall(turn.claim_tool_call_id(call_id), tool.name, arguments)
        calls = resolve_calls([call], {tool.name: tool}, self._budget)
        events = EventBuffer()
        work = asyncio.create_task(CallRunner(events, turn).run_round(calls), name=f"call {tool.name} of {turn.run_id}")
        async with aclosing(events.read(work)) as reading:
            async for event in reading:
                await turn.emit(event)
        outcome = work.result()[call.id].outcome
        if isinstance(outcome, ToolResult):
            return outcome
        assert outcome is not None, "the runner sets it"
        raise outcome


def _refuse_other(tool: object) -> None:
    """Raise `AgentError` for anything that `RunContext.call` cannot run."""
    if isinstance(tool, Tool) and not isinstance(tool, ClientTool) and not tool.is_method:
        return
    name = getattr(tool, "name", None) or getattr(tool, "__name__", repr(tool))
    if isinstance(tool, ClientTool):
        raise AgentError(f"{name} is a function of the client, which runs it: yield ToolCallExternal for the call.")
    if isinstance(tool, Tool):
        raise AgentError(f"{name} is a method that belongs to no instance: pass instance.{name} to context.call.")
    raise AgentError(f"context.call takes a tool, and {name} is none: write @tool above its function.")
