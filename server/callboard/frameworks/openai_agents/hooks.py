"""The facts known of a run while it goes on, the hooks by which the SDK tells them, and the runs inside its tools.

A tool may run an agent that it is, or by its code. Whoever runs an agent asks the SDK's default
runner, so another one stands in front of that. Outside of a tool that Callboard runs it changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    RunResult,
    RunResultStreaming,
    RunState,
    Tool,
)
from agents.items import ToolApprovalItem
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.tool_context import ToolContext

from callboard.calls import RejectedCall, ToolCall, ToolResult, running_tool
from callboard.errors import AgentError, ToolDenied, ToolError
from callboard.frameworks.openai_agents.messages import output_of, result_of
from callboard.frameworks.turn import Turn

LAST_WORDS_SECONDS = 1.0
"""The time that a tool that is stopped may take to end."""

current_call: ContextVar[str] = ContextVar("callboard_local_call")
"""The call that a tool which is no function was last run for in this task, and so the one that it ends."""


Join = Callable[[str, Agent[Any], RunConfig | None], tuple[Agent[Any], RunConfig, RunHooks[Any]]]
"""Gives a run inside a call's tool the agent, the configuration and the hooks by which it is part of the whole."""


class TurnOver(Exception):
    """The model asks for tools though it has had its last answer."""


class Hooks(RunHooks[Any]):
    """A run's turn, and what of it the SDK has no place for.

    `instructions` are the client's. By their ids, `started` are the calls that the SDK may run and
    `refused` those that it may not; of tools that are no functions, the user is asked about the
    calls in `must_ask`. `remote_calls` are the calls that OpenAI asked about before it runs them,
    by its requests' ids. `join` has the runs that a call's tool begins take part in this one.
    `called`: the last answer had calls; `spoke`: it had text; `broke_off`: it was shown in part and
    did not come to its end; `failure` is what the last failing request raised; `agents` take part in
    the run. `inside` is the call whose tool the run is part of, where it is. `handoff_id` is the last call that hands
    over to another agent, `parent_call_id` the one that handed over to the agent whose turn it is, empty for the first
    agent, or the call whose tool the run is part of.
    """

    join: Join

    def __init__(self, turn: Turn, instructions: str) -> None:
        self.turn = turn
        self.instructions = instructions
        self.inside: str | None = None
        self.handoff_id = ""
        self.parent_call_id = ""
        self.started: dict[str, ToolCall] = {}
        self.refused: dict[str, ToolError] = {}
        self.remote_calls: dict[str, str] = {}
        self.must_ask: set[str] = set()
        self.failure: Exception | None = None
        self.called = False
        self.spoke = False
        self.broke_off = False
        self.agents: list[Agent[Any]] = []
        self._admitted: set[str] = set()
        self._begun: list[str] = []
        self._tools: set[asyncio.Task[Any]] = set()
        self._handoffs = 0

    def below(self, call_id: str) -> "Hooks":
        """Return the hooks of a run inside that call's tool: of the same turn and calls, but without a voice in it."""
        inner = copy(self)
        inner.inside = inner.parent_call_id = call_id
        inner.instructions = ""
        return inner

    async def start(self, call: ToolCall) -> None:
        """Begin a call of a tool that can be run."""
        call = replace(call, parent_call_id=self.parent_call_id)
        self.started[call.id] = call
        await self.turn.calls.start(call)

    def refuse(self, call: ToolCall, error: ToolError) -> None:
        """Show a call that cannot be run."""
        self.refused[call.id] = error
        self.turn.calls.reject(RejectedCall(replace(call, parent_call_id=self.parent_call_id), error))

    async def run(self, call_id: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        """Run a call's tool, or a further part of it: one goes on, say, once what it asked for is decided.

        Raises `ToolError` where the call may not run, and whatever `perform` raises.
        """
        if (error := self.refused.get(call_id)) is not None:
            raise error
        if (call := self.started.get(call_id)) is None:
            raise ToolError("Not run: this call was not seen to begin.")
        task = asyncio.current_task()
        assert task is not None, "tools run in tasks"
        self._begun.append(call_id)
        self._tools.add(task)
        try:
            with _joining_runs(call_id, self.join):
                if call_id in self._admitted:
                    return await self.turn.calls.resume(call_id, call.name, perform)
                self._admitted.add(call_id)
                return await self.turn.calls.run(call, perform, ask=call_id in self.must_ask)
        finally:
            self._tools.discard(task)

    def fail(self, call_id: str, error: ToolError) -> None:
        """End a call that was begun and failed."""
        self._end(call_id)
        self.turn.calls.fail(call_id, error)

    async def wait_for_tools(self) -> None:
        """Wait for tools that are being stopped: the SDK does not."""
        if self._tools:
            await asyncio.wait(self._tools, timeout=LAST_WORDS_SECONDS)

    async def on_tool_end(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],  # noqa: ARG002 - the SDK's contract
        tool: Tool,
        result: object,
    ) -> None:
        """End the call of a tool of this server, which ended well or (then it is known) not."""
        if isinstance(tool, FunctionTool):
            assert isinstance(context, ToolContext), "a function's context"
            call_id = context.tool_call_id
            output = result_of(context, result)
        else:
            call_id = current_call.get()
            output = ToolResult(str(result))
        self._end(call_id)
        self.turn.calls.complete(call_id, output)

    async def on_handoff(
        self,
        context: RunContextWrapper[Any],  # noqa: ARG002 - the SDK's contract
        from_agent: Agent[Any],
        to_agent: Agent[Any],
    ) -> None:
        """Tell that another agent goes on. Raises `AgentError` where they never end handing over."""
        self._handoffs += 1
        if self._handoffs > self.turn.context.limits.max_tool_calls:
            raise AgentError(
                f"{from_agent.name} and {to_agent.name} hand over without end: tell one of them to answer."
            )
        if self.inside is None:
            self.parent_call_id = "" if to_agent is self.agents[0] else self.handoff_id
        if self.spoke:
            # Its text, and what the next one says, are two paragraphs of one answer.
            self.turn.say("\n\n")
        self.turn.show_status(f"{from_agent.name} hands over to {to_agent.name}")

    def settle(self, items: Iterable[Any]) -> None:
        """End the calls that the SDK ended without a word, by a guardrail say; `items` are the conversation's."""
        for item in items:
            match item:
                case {"type": str(kind), "call_id": str(call_id), "output": str() | list() as output} if kind.endswith(
                    "_output"
                ):
                    ended = output_of(output)
                    if call_id in self.started:
                        self.turn.calls.fail(call_id, ToolError(ended.text))
                    else:
                        self.turn.calls.complete(call_id, ended)

    async def decide(self, item: ToolApprovalItem, state: RunState[Any, Any]) -> None:
        """Ask the user about a call that waits for it, and tell the state."""
        call = ToolCall(item.call_id or "", item.name or "", item.arguments or "{}")
        if item.arguments is None:
            # Of a tool that is no function the item does not hold them.
            call = self.started.get(call.id, call)
        if any(item.agent is agent for agent in self.agents):
            error = self.refused.get(call.id) or await self._ask(call)
        else:
            # Of an agent that is a tool itself: of its calls, that tool's own is the one that is seen.
            error = await self._ask(replace(call, id=self._begun[-1]))
        if error is None:
            state.approve(item)
        else:
            state.reject(item, rejection_message=f"Error: {error}")

    async def _ask(self, call: ToolCall) -> ToolDenied | None:
        """Ask the user about a call; return their refusal, None where they agree."""
        await self.turn.calls.start(call)
        try:
            await self.turn.calls.approve(call)
        except ToolDenied as denied:
            if call.id not in self._begun:
                self.turn.calls.fail(call.id, denied)
            return denied
        return None

    def _end(self, call_id: str) -> None:
        # In place: the hooks of runs inside tools have the same list.
        self._begun[:] = [begun for begun in self._begun if begun != call_id]


@dataclass(slots=True)
class _Tool:
    call_id: str
    join: Join
    loop: asyncio.AbstractEventLoop
    runs: bool = True


_tool: ContextVar[_Tool | None] = ContextVar("callboard_openai_agents_tool", default=None)


@contextmanager
def _joining_runs(call_id: str, join: Join) -> Iterator[None]:
    """Run a tool within this context: the runs that it begins, and awaits, take part in the turn as `join` has them."""
    if not isinstance(runner := get_default_agent_runner(), _JoiningRunner):
        set_default_agent_runner(_JoiningRunner(runner))
    tool = _Tool(call_id, join, asyncio.get_running_loop())
    token = _tool.set(tool)
    try:
        yield
    finally:
        # A task that the tool has left behind is nobody's to show any more.
        tool.runs = False
        _tool.reset(token)


class _JoiningRunner(AgentRunner):
    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:  # noqa: A002 - the SDK's
        starting_agent, options = _take_part(starting_agent, options)
        return await self._runner.run(starting_agent, input, **options)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:  # noqa: A002 - the SDK's
        tool = running_tool.get()
        if tool is None or _tool.get() is None:
            return self._runner.run_sync(starting_agent, input, **options)
        tool.refuse_to_block(f"Runner.run_sync() of '{starting_agent.name}'", "use `await Runner.run(…)` there")
        return tool.wait_for(self.run(starting_agent, input, **options))

    def run_streamed(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResultStreaming:  # noqa: A002 - the SDK's
        starting_agent, options = _take_part(starting_agent, options)
        return self._runner.run_streamed(starting_agent, input, **options)


def _take_part(agent: Agent[Any], options: Mapping[str, Any]) -> tuple[Agent[Any], dict[str, Any]]:
    tool = _tool.get()
    if tool is None or not tool.runs or asyncio.get_running_loop() is not tool.loop:
        return agent, dict(options)
    config = options.get("run_config")
    if isinstance(config, Mapping):
        config = RunConfig(**config)
    twin, run_config, hooks = tool.join(tool.call_id, agent, config)
    own = options.get("hooks")
    return twin, {**options, "run_config": run_config, "hooks": hooks if own is None else _Both(hooks, own)}


class _Both(RunHooks[Any]):
    """Two hooks as one; each is told what the other is."""

    def __init__(self, first: RunHooks[Any], second: RunHooks[Any]) -> None:
        self._hooks = (first, second)


def _tell_both(name: str) -> Callable[..., Any]:
    async def tell(self: _Both, *args: Any, **kwargs: Any) -> None:
        for hooks in self._hooks:
            await getattr(hooks, name)(*args, **kwargs)

    return tell


for _name in dir(RunHooks):
    if _name.startswith("on_"):
        setattr(_Both, _name, _tell_both(_name))
