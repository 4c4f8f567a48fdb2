"""Patches pydantic-ai so that agents and events inside tools are seen by the running turn."""

from functools import cache, wraps
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.tools import RunContext

from callboard.calls.running_tool import current_tool
from callboard.frameworks.progress import report_progress
from callboard.frameworks.pydantic_ai.hooks import ModelRequests, PydanticAIHooks, turn_of_tool


@cache
def hook_agents_in_tools() -> None:
    """Add hooks to agents that a tool runs, and report the events that a tool emits.

    Without a running turn nothing changes.
    """
    iterate = Agent.iter
    run_sync = AbstractAgent.run_sync
    emit = RunContext.emit

    @wraps(iterate)
    def iterate_hooked(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if (turn := turn_of_tool.get()) is not None:
            kwargs["capabilities"] = [PydanticAIHooks(turn), ModelRequests(turn), *(kwargs.get("capabilities") or ())]
        return iterate(agent, *args, **kwargs)

    @wraps(run_sync)
    def run_in_the_loop(agent: Any, *args: Any, **kwargs: Any) -> Any:
        if (tool := current_tool.get()) is None or turn_of_tool.get() is None:
            return run_sync(agent, *args, **kwargs)
        tool.refuse_to_block(f"run_sync() of the agent '{agent.name}'", "use `await agent.run(…)` there")
        return tool.wait_for(agent.run(*args, **kwargs))

    @wraps(emit)
    async def report_and_emit(context: RunContext[Any], event: Any) -> Any:
        if turn_of_tool.get() is not None:
            # Reported here because the run's events come late: the call may have ended before them.
            report_progress(event)
        return await emit(context, event)

    Agent.iter = iterate_hooked  # type: ignore[method-assign, assignment] # in front of it
    AbstractAgent.run_sync = run_in_the_loop  # type: ignore[method-assign, assignment] # in front of it
    RunContext.emit = report_and_emit  # type: ignore[method-assign] # in front of it
