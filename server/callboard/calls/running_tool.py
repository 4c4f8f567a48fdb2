"""A framework's tool at work: its time, and what it asks for in its thread, which is done in the loop of its turn."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from callboard.errors import ToolError

R = TypeVar("R")


class RunningTool:
    """A tool at work on a call; `around` is the one that it is called by, where it is part of another.

    Its time is that of the `asyncio.Timeout` that ends it, and stands still while the user is asked about a call
    inside it.
    """

    def __init__(self, call_id: str, timeout: asyncio.Timeout) -> None:
        self.call_id = call_id
        self.around = running_tool.get()
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._left_seconds = 0.0
        self._stops = 0
        self._ended = False
        self._at_work: set[concurrent.futures.Future[Any]] = set()

    def end(self) -> None:
        """End what it still has the turn's loop do."""
        self._ended = True
        for future in list(self._at_work):
            future.cancel()

    def stop_time(self) -> None:
        """Stop its time; once more for each that waits."""
        when = self._timeout.when()
        if not self._ended and when is not None and not self._timeout.expired():
            self._left_seconds = when - self._loop.time()
            self._timeout.reschedule(None)
        self._stops += 1

    def resume_time(self) -> None:
        """Let its time go on where nobody waits any more."""
        self._stops -= 1
        if not self._ended and not self._stops and not self._timeout.expired():
            self._timeout.reschedule(self._loop.time() + self._left_seconds)

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Return what `work` gives in the turn's loop; for the tool's thread. Ends with the tool."""
        if self._ended:
            work.close()
            raise concurrent.futures.CancelledError
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._at_work.add(future)
        try:
            return future.result()
        finally:
            self._at_work.discard(future)

    def iterate(self, items: AsyncIterator[R]) -> Iterator[R]:
        """Yield what `items` gives in the turn's loop."""
        end = object()

        async def take() -> Any:
            return await anext(items, end)

        while (item := self.wait_for(take())) is not end:
            yield item

    def refuse_to_block(self, what: str, instead: str) -> None:
        """Raise `ToolError` in the turn's own loop, which a synchronous call would hold up, with all its calls."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is self._loop:
            raise ToolError(
                f"{what} runs synchronously in an asynchronous tool, which would hold up everything else: {instead}."
            )


running_tool: ContextVar[RunningTool | None] = ContextVar("callboard_running_tool", default=None)
"""The innermost tool that the current task, or thread, works for."""


@contextmanager
def running_a_tool(call_id: str, timeout: asyncio.Timeout) -> Iterator[None]:
    """Have what is done within this context be taken for the work of the call's tool; at its end it has ended."""
    tool = RunningTool(call_id, timeout)
    token = running_tool.set(tool)
    try:
        yield
    finally:
        running_tool.reset(token)
        tool.end()


def tools_around() -> list[RunningTool]:
    """Return the tools that the current task works for, the innermost first."""
    tools = []
    tool = running_tool.get()
    while tool is not None:
        tools.append(tool)
        tool = tool.around
    return tools


@contextmanager
def stopping_time() -> Iterator[None]:
    """Stop, within this context, the time of every tool that the current task works for."""
    tools = tools_around()
    for tool in tools:
        tool.stop_time()
    try:
        yield
    finally:
        for tool in tools:
            tool.resume_time()


@contextmanager
def containing() -> Iterator[None]:
    """Raise `ToolError` in place of an exception of a tool that would end the run or, out of a task, the server."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise ToolError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


async def contain(work: Awaitable[R]) -> R:
    """Return what a framework's tool gives. Raises `ToolError` as `containing` does."""
    with containing():
        return await work
