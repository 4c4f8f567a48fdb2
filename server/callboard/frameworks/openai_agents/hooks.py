"""The state of a run of the SDK, the hooks through which the SDK updates it, and the agents that run inside tools.

A tool may run an agent, either by being one or in its code. Every agent is run by the SDK's default runner, so that
runner is replaced by one that hooks such runs. Outside of a tool that Callboard runs, the replacement changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from agents import (
    Agent,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    RunResult,
    RunResultStreaming,
    RunState,
    Tool,
    TResponseInputItem,
)
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.tool_context import ToolContext

from callboard.calls import ToolCall
from callboard.calls.call import RejectedCall
from callboard.calls.running_tool import current_tool
from callboard.errors import AgentError, ToolError
from callboard.frameworks.openai_agents.messages import read_output, to_tool_result
from callboard.frameworks.turn import AdapterTurn

STOP_TIMEOUT_SECONDS = 1.0
"""The time that a cancelled tool may take to stop."""

HookInnerRun = Callable[[str, Agent[Any], RunConfig | None], tuple[Agent[Any], RunConfig, "AgentsHooks"]]
"""Returns the hooked agent, the configuration and the hooks for a run that the tool of a call (its id) starts."""


class AgentsHooks(RunHooks[Any]):
    """The state of one run and the hooks that update it.

    Attributes:
        instructions: The text of the client's system messages.
        outer_call_id: The call whose tool this run is part of, None for the turn's own run.
        handoff_id: The last call that handed off to another agent.
        parent_call_id: The call that handed off to the current agent, or whose tool runs it; empty for the first.
        started: The calls that the SDK may run, by id.
        refused: The errors of calls that may not run, by id.
        failure: The exception of the last model request that failed.
        has_calls: The last answer had calls.
        was_cut_off: The last answer was shown in part but did not end.
        reads_messages: The model reads the user's messages between rounds. With guardrails for the input it does not,
            because the SDK checks only the first input of a run.
        agents: The hooked agents of the run.
        hook_inner_run: AgentsHooks a run that a call's tool starts.
    """

    hook_inner_run: HookInnerRun

    def __init__(self, turn: AdapterTurn, instructions: str) -> None:
        self.turn = turn
        self.instructions = instructions
        self.outer_call_id: str | None = None
        self.handoff_id = ""
        self.parent_call_id = ""
        self.started: dict[str, ToolCall] = {}
        self.refused: dict[str, ToolError] = {}
        self.failure: Exception | None = None
        self.has_calls = False
        self.was_cut_off = False
        self.reads_messages = True
        self._user_messages: list[tuple[int, str]] = []
        """The user's messages to this run, each with the number of the items before it."""
        self.agents: list[Agent[Any]] = []
        self._started_tools: set[str] = set()
        self._tools: set[asyncio.Task[Any]] = set()
        self._handoffs = 0

    def for_inner_run(self, call_id: str) -> "AgentsHooks":
        """Return hooks for a run inside a call's tool.

        They share the turn and its calls, but show none of the run's text.
        """
        inner = copy(self)
        inner.outer_call_id = inner.parent_call_id = call_id
        inner.instructions = ""
        return inner

    async def add_messages(self, items: list[TResponseInputItem]) -> list[TResponseInputItem]:
        """Return a request's items with the messages that the user has sent to the run, each where it was first read.

        The SDK has no place in its state for them.
        """
        if self.outer_call_id is not None:
            return items
        if self.reads_messages and (text := await self.turn.take_message()):
            self._user_messages.append((len(items), text))
        whole = list(items)
        for place, text in reversed(self._user_messages):
            whole.insert(place, {"role": "user", "content": text})
        return whole

    async def start(self, call: ToolCall) -> None:
        """Start a call of a tool that can be run."""
        call = replace(call, parent_call_id=self.parent_call_id)
        self.started[call.id] = call
        await self.turn.calls.start(call)

    def refuse(self, call: ToolCall, error: ToolError) -> None:
        """Show a call that cannot be run."""
        self.refused[call.id] = error
        self.turn.calls.reject(RejectedCall(replace(call, parent_call_id=self.parent_call_id), error))

    async def run(self, call_id: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        """Run a call's tool, or continue it, for example after an approval that the tool's agent needed.

        A call that another server has ended gives its result again. Raises `ToolError` if the call may not run, and any
        exception of `perform`.
        """
        if (ended := self.turn.calls.earlier_results.get(call_id)) is not None:
            return ended
        if (error := self.refused.get(call_id)) is not None:
            raise error
        if (call := self.started.get(call_id)) is None:
            raise ToolError("Not run: the start of this call was not reported.")
        task = asyncio.current_task()
        assert task is not None, "tools run in tasks"
        self._tools.add(task)
        try:
            with _hooking_inner_runs(self.hook_inner_run):
                if call_id in self._started_tools:
                    return await self.turn.calls.run_part(call_id, call.name, perform)
                self._started_tools.add(call_id)
                return await self.turn.calls.run(call, perform)
        finally:
            self._tools.discard(task)

    async def wait_for_tools(self) -> None:
        """Wait for tools that are being cancelled, which the SDK does not do."""
        if self._tools:
            await asyncio.wait(self._tools, timeout=STOP_TIMEOUT_SECONDS)

    async def on_tool_end(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],  # noqa: ARG002 - the SDK's contract
        tool: Tool,  # noqa: ARG002 - the SDK's contract
        result: object,
    ) -> None:
        """End the call of a function. If its failure was reported before, this has no effect."""
        assert isinstance(context, ToolContext), "the context of a call"
        self.turn.calls.complete(context.tool_call_id, to_tool_result(context, result))

    async def on_handoff(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 - the SDK's contract
        from_agent: Agent[Any],
        to_agent: Agent[Any],
    ) -> None:
        """Show a handoff. Raises `AgentError` if agents hand off to each other without end."""
        self._handoffs += 1
        if self._handoffs > self.turn.context.limits.max_tool_calls:
            raise AgentError(
                f"{from_agent.name} and {to_agent.name} hand off to each other without end: tell one of them to answer."
            )
        if self.outer_call_id is None:
            self.parent_call_id = "" if to_agent is self.agents[0] else self.handoff_id
            # The texts of both agents are one answer.
            self.turn.begin_paragraph()
        self.turn.show_status(f"{from_agent.name} hands off to {to_agent.name}")

    def end_unreported_calls(self, items: Iterable[Any]) -> None:
        """End calls whose end the SDK did not report, for example after a guardrail.

        `items` are the conversation's items.
        """
        for item in items:
            match item:
                case {"type": str(kind), "call_id": str(call_id), "output": str() | list() as output} if kind.endswith(
                    "_output"
                ):
                    ended = read_output(output)
                    if call_id in self.started:
                        self.turn.calls.fail(call_id, ToolError(ended.text))
                    else:
                        self.turn.calls.complete(call_id, ended)

    async def decide_all(self, result: RunResult) -> RunState[Any, Any]:
        """Ask the user about all calls of an interrupted run at once, and return its state with the decisions.

        Calls inside a running tool come first, because they cannot wait, and the tool is open until they are decided.
        """
        self.end_unreported_calls(result.to_input_list())
        state = result.to_state()
        items = {item.call_id or "": item for item in result.interruptions}
        calls = [self.started[call_id] for call_id in items if call_id not in self.refused]
        calls = [call for call in calls if call.parent_call_id] or calls
        refusals = await self.turn.calls.approve_all(calls)
        decisions = {call.id: refusal for call, refusal in zip(calls, refusals, strict=True)}
        decisions |= {call_id: self.refused[call_id] for call_id in items if call_id in self.refused}
        for call_id, refusal in decisions.items():
            if refusal is None:
                state.approve(items[call_id])
            else:
                self.turn.calls.fail(call_id, refusal)
                state.reject(items[call_id], rejection_message=f"Error: {refusal}")
        return state


_hook_of_tool: ContextVar[HookInnerRun | None] = ContextVar("callboard_openai_agents_hook", default=None)
"""Hooks of the runs that the tool of this context starts."""


@contextmanager
def _hooking_inner_runs(hook_inner_run: HookInnerRun) -> Iterator[None]:
    """Return a context for a tool, in which runs that the tool starts and awaits are hooked by `hook_inner_run`."""
    if not isinstance(runner := get_default_agent_runner(), _HookingRunner):
        set_default_agent_runner(_HookingRunner(runner))
    token = _hook_of_tool.set(hook_inner_run)
    try:
        yield
    finally:
        _hook_of_tool.reset(token)


class _HookingRunner(AgentRunner):
    """The SDK's default runner, which hooks the runs that a tool starts."""

    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:  # noqa: A002 - the SDK's
        starting_agent, options, hooks = _hook_inner_run(starting_agent, options)
        result = await self._runner.run(starting_agent, input, **options)
        while hooks is not None and result.interruptions:
            result = await self._runner.run(starting_agent, await hooks.decide_all(result), **options)
        return result

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:  # noqa: A002 - the SDK's
        tool = current_tool.get()
        if tool is None or _hook_of_tool.get() is None:
            return self._runner.run_sync(starting_agent, input, **options)
        tool.refuse_to_block(f"Runner.run_sync() of '{starting_agent.name}'", "use `await Runner.run(…)` there")
        return tool.wait_for(self.run(starting_agent, input, **options))

    def run_streamed(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResultStreaming:  # noqa: A002 - the SDK's
        starting_agent, options, _ = _hook_inner_run(starting_agent, options)
        return self._runner.run_streamed(starting_agent, input, **options)


def _hook_inner_run(
    agent: Agent[Any], options: Mapping[str, Any]
) -> tuple[Agent[Any], dict[str, Any], AgentsHooks | None]:
    tool = current_tool.get()
    hook_inner_run = _hook_of_tool.get()
    # A task may outlive the tool that has started it; its runs are not shown.
    if tool is None or hook_inner_run is None or not tool.is_running_here:
        return agent, dict(options), None
    config = options.get("run_config")
    if isinstance(config, Mapping):
        config = RunConfig(**config)
    hooked_agent, run_config, hooks = hook_inner_run(tool.call_id, agent, config)
    own = options.get("hooks")
    both = hooks if own is None else _CombinedHooks(hooks, own)
    return hooked_agent, {**options, "run_config": run_config, "hooks": both}, hooks


class _CombinedHooks(RunHooks[Any]):
    """Two hooks as one: both are called for every event."""

    def __init__(self, *both: RunHooks[Any]) -> None:
        for name in dir(RunHooks):
            if name.startswith("on_"):
                setattr(self, name, partial(_call_each, [getattr(hooks, name) for hooks in both]))


async def _call_each(functions: Iterable[Callable[..., Awaitable[None]]], *args: Any, **kwargs: Any) -> None:
    for function in functions:
        await function(*args, **kwargs)
