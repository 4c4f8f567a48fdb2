"""Running tools of frameworks: their time limits, and work that a tool's thread gives to the event loop of the turn."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from callboard.calls.context import CallClock
from callboard.errors import ToolError

R = TypeVar("R")


class RunningTool:
    """A running tool; `around` is the running tool that it is called from, None for a call of the agent.

    `clock` limits its time, which stops while the user is asked about a call inside the tool.
    """

    def __init__(self, call_id: str, clock: CallClock) -> None:
        self.call_id = call_id
        self.clock = clock
        self.around = current_tool.get()
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._at_work: set[concurrent.futures.Future[Any]] = set()

    @property
    def is_running_here(self) -> bool:
        """Whether it has not ended, and this code runs in the event loop of the turn."""
        return not self._ended and self._is_in_loop()

    def end(self) -> None:
        """Cancel the work that its thread has given to the event loop."""
        self._ended = True
        for future in list(self._at_work):
            future.cancel()

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` in the event loop of the turn, and return its result. To be called in the tool's thread."""
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
        """Yield the items, each read in the event loop of the turn. To be called in the tool's thread."""
        end = object()

        async def take() -> Any:
            return await anext(items, end)

        while (item := self.wait_for(take())) is not end:
            yield item

    def refuse_to_block(self, what: str, instead: str) -> None:
        """Raise `ToolError` in the event loop of the turn, which a synchronous call would block."""
        if self._is_in_loop():
            raise ToolError(
                f"{what} runs synchronously in an asynchronous tool, which would block the whole server: {instead}."
            )

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


current_tool: ContextVar[RunningTool | None] = ContextVar("callboard_running_tool", default=None)
"""The innermost running tool of the current task or thread."""


@contextmanager
def running_a_tool(call_id: str, clock: CallClock) -> Iterator[None]:
    """Make the call's tool the running tool inside the context; it ends with the context."""
    tool = RunningTool(call_id, clock)
    token = current_tool.set(tool)
    try:
        yield
    finally:
        current_tool.reset(token)
        tool.end()


def tools_around() -> list[RunningTool]:
    """Return the running tools of the current task, the innermost first."""
    tools = []
    tool = current_tool.get()
    while tool is not None:
        tools.append(tool)
        tool = tool.around
    return tools


@contextmanager
def containing() -> Iterator[None]:
    """Turn an exception of a tool that would end the run, or even the server, into a `ToolError`."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise ToolError(f"{type(error).__name__}: {error}".removesuffix(": ")) from error


async def contain(work: Awaitable[R]) -> R:
    """Return the result of a framework's tool. Raises `ToolError` as `containing` does."""
    with containing():
        return await work
