"""Hooks on the tool nodes of a graph, which apply the server's limits to their calls.

LangGraph's events report a tool's start too late to ask the user, and a tool that raises ends the run. But every call
of a tool node passes through one of its methods, so that method is replaced.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial, wraps
from inspect import isfunction
from typing import Any
from weakref import WeakSet

from langchain_core.messages import ToolCall as LangChainCall
from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool
from langgraph._internal._constants import CONFIG_KEY_CHECKPOINT_NS, CONFIG_KEY_RUNTIME
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.pregel import Pregel
from langgraph.types import Command
from pydantic import ValidationError

from callboard.calls import ToolCall
from callboard.calls.running_tool import containing, current_tool
from callboard.errors import InvalidArguments, ToolError, UnknownTool
from callboard.frameworks.failures import tool_error
from callboard.frameworks.langgraph.hooks import GraphHooks, Path, current_hooks
from callboard.frameworks.langgraph.messages import messages_in, read_arguments, unreadable_error
from callboard.frameworks.langgraph.stream import Graph
from callboard.frameworks.progress import report_progress

Result = ToolMessage | Command[Any] | list[Any]
Execute = Callable[[], Awaitable[Result]]


def find_tool_nodes(graph: Graph, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of the tool nodes of the graph and its subgraphs."""
    for name, node in graph.nodes.items():
        if isinstance(node.bound, ToolNode):
            yield (*path, name)
    for name, inner in graph.get_subgraphs():
        if isinstance(inner, Pregel):
            yield from find_tool_nodes(inner, (*path, name))


@cache
def hook_tool_nodes() -> None:
    """Patch LangGraph so that calls of tool nodes belong to the turn, also in graphs that a node or a tool runs.

    Without a running turn nothing changes.
    """
    run_one = ToolNode._run_one
    arun_one = ToolNode._arun_one
    stream = Pregel.stream

    @wraps(stream)
    def refuse_to_block(graph: Graph, *args: Any, **kwargs: Any) -> Any:
        if (tool := current_tool.get()) is not None and current_hooks.get() is not None:
            tool.refuse_to_block(f"The graph '{graph.name}'", "use `await graph.ainvoke(…)` there")
        return stream(graph, *args, **kwargs)

    @wraps(arun_one)
    async def arun(node: ToolNode, call: LangChainCall, *injected: Any) -> Result:
        hooks = current_hooks.get()
        if hooks is None or call["id"] is None:
            return await arun_one(node, call, *injected)
        execute = partial(arun_one, node, call, *map(_add_progress_writer, injected))
        return await _run_once(hooks, node, call, execute)

    @wraps(run_one)
    def run(node: ToolNode, call: LangChainCall, *injected: Any) -> Result:
        tool = current_tool.get()
        hooks = current_hooks.get()
        if tool is None or hooks is None or call["id"] is None:
            return run_one(node, call, *injected)
        execute = partial(asyncio.to_thread, run_one, node, call, *injected)
        return tool.wait_for(_run(hooks, node, call, execute))

    _hook_execution()
    Pregel.stream = refuse_to_block  # type: ignore[assignment, method-assign] # in front of it
    ToolNode._arun_one = arun  # type: ignore[assignment, method-assign] # in front of it
    ToolNode._run_one = run  # type: ignore[assignment, method-assign] # in front of it


def _hook_execution() -> None:
    """Patch the place where a tool starts: middleware around the tool may have changed its arguments."""
    execute_sync = ToolNode._execute_tool_sync
    execute_async = ToolNode._execute_tool_async

    @wraps(execute_async)
    async def aexecute(node: ToolNode, request: ToolCallRequest, *rest: Any) -> Result:
        try:
            await _show_changes(request.tool_call)
        except ToolError as refused:
            return _error_message(request.tool_call, str(refused))
        return await execute_async(node, request, *rest)

    @wraps(execute_sync)
    def execute(node: ToolNode, request: ToolCallRequest, *rest: Any) -> Result:
        try:
            if (tool := current_tool.get()) and not _is_shown(request.tool_call):
                tool.refuse_to_block("wrap_tool_call, which changes the arguments,", "use awrap_tool_call")
                tool.wait_for(_show_changes(request.tool_call))
        except ToolError as refused:
            return _error_message(request.tool_call, str(refused))
        return execute_sync(node, request, *rest)

    ToolNode._execute_tool_async = aexecute  # type: ignore[assignment, method-assign] # in front of it
    ToolNode._execute_tool_sync = execute  # type: ignore[assignment, method-assign] # in front of it


def _is_shown(call: LangChainCall) -> bool:
    hooks = current_hooks.get()
    return hooks is None or call["id"] is None or hooks.turn.calls.shows(call["id"], call["args"])


async def _show_changes(call: LangChainCall) -> None:
    """Show arguments that the agent has changed; the user may be asked again."""
    if (hooks := current_hooks.get()) is not None and call["id"] is not None:
        await hooks.turn.calls.change_arguments(call["id"], call["args"])


def _checkpoint_namespace() -> str:
    namespace: str = ensure_config().get("configurable", {}).get(CONFIG_KEY_CHECKPOINT_NS, "")
    return namespace


@cache
def contain_tools() -> None:
    """Patch LangChain so that a tool which raises `KeyboardInterrupt` or the like fails alone.

    LangChain runs a tool in its own task, where such an exception would end the event loop. Without a running turn
    nothing changes.
    """
    run_tool = BaseTool.run
    arun_tool = BaseTool.arun

    @wraps(run_tool)
    def run(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
        _contain_class(type(tool))
        return run_tool(tool, *args, **kwargs)

    @wraps(arun_tool)
    async def arun(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
        _contain_class(type(tool))
        return await arun_tool(tool, *args, **kwargs)

    BaseTool.run = run  # type: ignore[assignment, method-assign] # in front of it
    BaseTool.arun = arun  # type: ignore[assignment, method-assign] # in front of it


_contained: WeakSet[type] = WeakSet()


def _contain_class(kind: type[BaseTool]) -> None:
    """Put `containing` around the code of a class of tools, which each class has in its own `_run` and `_arun`."""
    for owner in kind.__mro__:
        if owner in _contained:
            continue
        _contained.add(owner)
        for name, contain_method in (("_run", _contain_run), ("_arun", _contain_arun)):
            if isfunction(method := vars(owner).get(name)):
                setattr(owner, name, contain_method(method))


def _contain_run(run_tool: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run_tool)
    def run(*args: Any, **kwargs: Any) -> Any:
        with containing() if current_hooks.get() else nullcontext():
            return run_tool(*args, **kwargs)

    return run


def _contain_arun(arun_tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(arun_tool)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        with containing() if current_hooks.get() else nullcontext():
            return await arun_tool(*args, **kwargs)

    return arun


async def _run_once(hooks: GraphHooks, node: ToolNode, call: LangChainCall, execute: Execute) -> Result:
    """Run the call, or return its result if this visit of the node has run it before.

    After an interrupt LangGraph runs the whole node again, with the calls beside the one that interrupted.
    """
    call_id = call["id"] or ""
    visit = (call_id, _checkpoint_namespace())
    task: asyncio.Task[Result] | None = hooks.runs.get(visit)
    # LangGraph numbers the interrupts of a node, so a call with an interrupt has to run again.
    if task is None or call_id in hooks.interrupted or (task.done() and (task.cancelled() or task.exception())):
        task = hooks.runs[visit] = asyncio.create_task(_run(hooks, node, call, execute))
    return await task


async def _run(hooks: GraphHooks, node: ToolNode, call: LangChainCall, execute: Execute) -> Result:
    """Run the call with `execute`, within the turn's limits."""
    call_id = call["id"] or ""
    name = call["name"]
    calls = hooks.turn.calls
    if (ended := calls.earlier_results.get(call_id)) is not None:
        return ToolMessage(ended, name=name, tool_call_id=call_id)
    known = hooks.calls.get(call_id)
    is_in_tool = call_id in hooks.inner_calls
    if known is not None and read_arguments(known) is None:
        hooks.refuse(known)
        return _error_message(call, str(unreadable_error(known)))
    await hooks.start(call_id, name, call["args"])
    perform = partial(_return_outcome, execute)
    try:
        if known is not None and call["args"] != read_arguments(known):
            await calls.change_arguments(call_id, call["args"])
        if call_id in hooks.interrupted:
            # The tool starts again to receive the answer it waited for. This is not a new call, so it is not counted
            # again.
            outcome = await calls.run_part(call_id, name, perform)
        else:
            outcome = await calls.run(ToolCall(call_id, name, call["args"]), perform, is_counted=is_in_tool)
    except ToolError as refused:
        calls.fail(call_id, refused)
        return _error_message(call, hooks.turn.mask(str(refused)))
    match outcome:
        case GraphInterrupt():
            hooks.interrupted.add(call_id)
            calls.pause(call_id)
            # Interrupts of a node may have the same id; LangGraph reports the first.
            hooks.paused = {interrupt.id: call_id for interrupt in outcome.args[0]} | hooks.paused
            raise outcome
        case Exception() if not isinstance(outcome, GraphBubbleUp):
            error = tool_error(outcome)
            calls.fail(call_id, error)
            if is_in_tool:
                # An exception of an inner agent's tool ends that agent, and then the outer tool fails.
                raise outcome
            return _error_message(call, hooks.turn.mask(str(error)))
        case BaseException():
            raise outcome
        case _:
            _end(hooks, node, call, outcome)
            return outcome


def _end(hooks: GraphHooks, node: ToolNode, call: LangChainCall, result: Result) -> None:
    """End the call with its own message among the messages of the result."""
    messages = [message for message in messages_in(result) if isinstance(message, ToolMessage)]
    own = [message for message in messages if message.tool_call_id == call["id"]]
    message = own[-1] if own else ToolMessage("", tool_call_id=call["id"])
    if message.status == "error" and call["name"] not in node.tools_by_name:
        hooks.turn.calls.fail(message.tool_call_id, UnknownTool(message.text))
    elif message.status == "error" and isinstance(hooks.tool_errors.get(message.tool_call_id), ValidationError):
        hooks.turn.calls.fail(message.tool_call_id, InvalidArguments(message.text))
    else:
        hooks.finish(message)


def _add_progress_writer(injected: Any) -> Any:
    """Return an injected argument of a tool; the stream writer of a `ToolRuntime` reports the call's progress.

    Progress that is written to the graph's stream is not assigned to a call.
    """
    if not isinstance(injected, ToolRuntime):
        return injected
    settings = injected.config.get("configurable") or {}
    if (runtime := settings.get(CONFIG_KEY_RUNTIME)) is not None:
        settings = {**settings, CONFIG_KEY_RUNTIME: replace(runtime, stream_writer=report_progress)}
    return replace(injected, stream_writer=report_progress, config={**injected.config, "configurable": settings})


async def _return_outcome(execute: Execute) -> Result | BaseException:
    """Return the result of the call, or its exception: a tool may raise anything, and the run must not end."""
    [outcome] = await asyncio.gather(execute(), return_exceptions=True)
    return outcome


def _error_message(call: LangChainCall, reason: str) -> ToolMessage:
    return ToolMessage(f"Error: {reason}", name=call["name"], tool_call_id=call["id"], status="error")
