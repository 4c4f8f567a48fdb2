"""Threads for work that would block the event loop. They are separate from the loop's own, which resolve names."""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio.lowlevel import RunVar

Result = TypeVar("Result")


class Threads:
    """At most `count` threads at a time, in each event loop."""

    def __init__(self, name: str, count: int) -> None:
        self._count = count
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"callboard_{name}_threads")

    async def run(self, function: Callable[[], Result]) -> Result:
        """Call `function` in a thread and return its result. If the caller is cancelled, the thread goes on."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            # Not anyio's own limiter or the loop's, because long work must not delay the database or the resolver.
            limiter = anyio.CapacityLimiter(self._count)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)


REQUESTS = Threads("request", 4)
"""Threads in which requests of clients are converted to conversations for models."""
