"""Runs the function of one tool call, whatever the function does: raise, hang, ignore cancellation, return nonsense.

One of the few modules that catch every exception, because a tool may raise any. The outcome is always a `ToolResult`
or a `ToolError`, and the run continues.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import structlog

from callboard.calls.arguments import ReadArguments
from callboard.calls.context import ToolContext
from callboard.calls.tool import Tool, ToolResult, as_result
from callboard.errors import ToolError, ToolTimeout
from callboard.redaction import without_paths
from callboard.text import storable
from callboard.threads import Threads

CANCEL_GRACE_SECONDS = 1.0

# Not the threads of requests: tools may block for a long time.
_THREADS = Threads("tool", 64)
_abandoned: set[asyncio.Task[ToolResult]] = set()


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as the tool's function takes them; the function does not run.

    Raises `InvalidArguments`, or `ToolError` if a validator of the tool's author fails.
    """
    read: ReadArguments = tool.read_arguments or dict
    with _raising_tool_errors(Exception):
        return read(arguments)


async def execute(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, *, default_timeout_seconds: float
) -> ToolResult:
    """Run the tool with checked arguments, within its time limit.

    The time in which it waits for an answer of its user does not count. A tool that is out of time, or whose run is
    cancelled, is stopped: a coroutine is cancelled, and a plain function in a thread sees it in its context. It has
    `CANCEL_GRACE_SECONDS` to end. If it still runs then, the `ToolTimeout` says so and `context.channel.left_running`
    is set. Raises only `ToolError` and its subclasses.
    """
    limit = tool.timeout_seconds or default_timeout_seconds
    thread = _Thread()
    running = asyncio.create_task(_attempt(tool, arguments, context, thread), name=f"tool {context.tool_name}")
    try:
        context.clock.restart()
        with contextlib.suppress(TimeoutError):
            async with context.clock.limit(limit):
                await asyncio.wait({running})
        if running.done():
            if running.cancelled():
                raise ToolError(f"{context.tool_name} cancelled itself.")
            return running.result()
        await _stop(running, context, thread)
        ended = "could not be stopped: it may still be running" if context.channel.left_running else "was stopped"
        raise ToolTimeout(f"{context.tool_name} did not end within {limit:g} s and {ended}.")
    except asyncio.CancelledError:
        await _stop(running, context, thread)
        raise
    finally:
        context.channel.close()


def error_text(error: BaseException) -> str:
    """Return the message of an exception of a tool, "" if its `__str__` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - its class is the tool author's, and may raise anything
        return ""


def runs_in_thread(tool: Tool) -> bool:
    """Return whether the tool's function runs in a thread, which cannot be stopped from outside."""
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return not any(is_kind(one) for is_kind in kinds for one in (tool.function, type(tool.function).__call__))


class _Thread:
    """Whether the call has begun in a thread, and when it ends there."""

    def __init__(self) -> None:
        self.begun = False
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def run(self, function: Callable[[], object]) -> object:
        """Return the result of the function, or all values of its generator. To be called in the thread."""
        self.begun = True
        try:
            value = function()
            return list(value) if inspect.isgenerator(value) else value
        finally:
            # The event loop may be closed when the tool ends.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.ended.set)


async def _stop(running: asyncio.Task[ToolResult], context: ToolContext, thread: _Thread) -> None:
    context.channel.cancel()
    # The event loop keeps only weak references to tasks. `_forget` reads the result, or asyncio would log a warning.
    _abandoned.add(running)
    running.add_done_callback(_forget)
    running.cancel()
    context.channel.left_running = True
    ends = {running} | ({asyncio.create_task(thread.ended.wait())} if thread.begun else set())
    _, at_work = await asyncio.wait(ends, timeout=CANCEL_GRACE_SECONDS)
    context.channel.left_running = bool(at_work)
    for end in at_work:
        end.cancel()


async def _attempt(tool: Tool, arguments: Mapping[str, Any], context: ToolContext, thread: _Thread) -> ToolResult:
    context.channel.activate()
    structlog.contextvars.bind_contextvars(tool_call_id=context.tool_call_id, tool=context.tool_name)
    given = {} if tool.context_parameter is None else {tool.context_parameter: context}
    # SystemExit, KeyboardInterrupt and GeneratorExit too: they end this call, not the run or the server.
    with _raising_tool_errors(BaseException):
        value = await _call(tool, {**arguments, **given}, thread)
    try:
        return as_result(value)
    except ToolError:
        raise
    except Exception as error:
        message = (
            f"{context.tool_name} returned a {type(value).__name__} that cannot be its result: {error_text(error)}"
        )
        raise ToolError(storable(message)) from error


async def _call(tool: Tool, arguments: dict[str, Any], thread: _Thread) -> object:
    work = partial(tool.function, **arguments)
    if runs_in_thread(tool):
        value = await _THREADS.run(partial(thread.run, work))
    else:
        value = work()
    if inspect.isawaitable(value):
        value = await value
    if inspect.isasyncgen(value):
        async with contextlib.aclosing(value):
            return [part async for part in value]
    return value


@contextlib.contextmanager
def _raising_tool_errors(kind: type[BaseException]) -> Iterator[None]:
    """Turn exceptions of this kind into a `ToolError` with a message, except a cancellation."""
    try:
        yield
    except asyncio.CancelledError:
        raise
    except ToolError as error:
        if error_text(error):
            raise
        # The name of the class is in place of the missing message.
        named = ToolError(type(error).__name__)
        named.code = error.code
        raise named from error
    except kind as error:
        # Messages of libraries may hold paths of this machine.
        text = without_paths(error_text(error))
        raise ToolError(storable(f"{type(error).__name__}: {text}" if text else type(error).__name__)) from error


def _forget(ended: asyncio.Task[ToolResult]) -> None:
    _abandoned.discard(ended)
    if not ended.cancelled():
        ended.exception()
