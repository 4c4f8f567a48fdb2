"""A cache of the living parts of pages: each is rendered once in `PART_SECONDS`, however many people watch it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable

PART_SECONDS = 0.9
"""A little less than the second after which a page asks for its living part again."""


class Shared:
    """The living parts of pages, each kept for a moment by what it is of; nothing in them may be one person's own."""

    def __init__(self, lifetime_seconds: float = PART_SECONDS) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._made: dict[Hashable, tuple[float, asyncio.Task[str]]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[str]]) -> str:
        """Return what was made for this key a moment ago, or is being made; raises what `make` raises."""
        now = time.monotonic()
        self._made = {one: made for one, made in self._made.items() if now - made[0] < self._lifetime_seconds}
        if key not in self._made:
            self._made[key] = (now, asyncio.create_task(_run(make), name="make a page"))
        # Whoever asked first may leave: the others wait for the same.
        return await asyncio.shield(self._made[key][1])


async def _run(make: Callable[[], Awaitable[str]]) -> str:
    return await make()
