"""Where pages are read and blocking searches wait: threads of their own."""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio.lowlevel import RunVar

MAX_THREADS = 8

Result = TypeVar("Result")

_threads: RunVar[anyio.CapacityLimiter] = RunVar("callboard_web_threads")


async def in_thread(function: Callable[[], Result]) -> Result:
    """What `function` returns. A caller that is cancelled leaves the thread behind, which keeps its place."""
    try:
        limiter = _threads.get()
    except LookupError:
        # Not anyio's own, nor the loop's: a page that takes long must not starve the database or the resolver.
        _threads.set(limiter := anyio.CapacityLimiter(MAX_THREADS))
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
