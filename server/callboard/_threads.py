"""Threads for work that would hold up the event loop, apart from the loop's own, which resolves names."""

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
        """Return what `function` returns. A caller that is cancelled leaves the thread behind."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            # Not anyio's own, nor the loop's: what takes long must not starve the database or the resolver.
            limiter = anyio.CapacityLimiter(self._count)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)


REQUESTS = Threads("request", 4)
"""The threads in which what a client sent is turned into what a model is told."""
