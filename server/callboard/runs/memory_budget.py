"""Limits the memory of the logs, texts and files of runs, in bytes, for each user and for the whole server.

When over a limit, ended runs are evicted first, oldest first. If that is not enough, the growing log drops its oldest
frames. Freed memory is returned to the system.
"""

import asyncio
import ctypes
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

TRIM_BYTES = 32 * 1024 * 1024
"""The freed memory after which memory is returned to the system, which blocks the server for some milliseconds."""
TRIM_SECONDS = 1
"""The time from the free to the return, in which copies are freed too, for example of a text that is being stored."""

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


@dataclass(slots=True)
class MemoryBudget:
    """The limits, and the bytes in use.

    `evict_oldest` evicts the oldest ended run of a user, or of any user for None; it returns False if there is none.
    """

    max_bytes: float = float("inf")
    max_user_bytes: float = float("inf")
    evict_oldest: Callable[[str | None], bool] = lambda _: False
    _used_by_user: Counter[str] = field(default_factory=Counter)
    _freed_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        """The bytes in use by the runs of all users."""
        return self._used_by_user.total()

    def add(self, user: str, size_bytes: int) -> None:
        """Add bytes to the usage of a user; `size_bytes` may be negative."""
        self._used_by_user[user] += size_bytes
        if not self._used_by_user[user]:
            del self._used_by_user[user]
        self._freed_bytes -= min(size_bytes, 0)
        if self._freed_bytes >= TRIM_BYTES and _malloc_trim:
            # Otherwise glibc keeps hundreds of MiB in the holes between other objects.
            self._freed_bytes = 0
            asyncio.get_running_loop().call_later(TRIM_SECONDS, _malloc_trim, 0)

    def make_room(self, user: str) -> bool:
        """Evict ended runs until the usage is within the limits; return False if it still exceeds them."""
        while self._used_by_user[user] > self.max_user_bytes:
            if not self.evict_oldest(user):
                return False
        while self._used_by_user.total() > self.max_bytes:
            if not self.evict_oldest(None):
                return False
        return True


class RunMemory:
    """Counts the memory of one run, as a part of its user's."""

    def __init__(self, budget: MemoryBudget | None = None, user: str = "") -> None:
        self._budget = budget or MemoryBudget()
        self.user = user
        self._used_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Add bytes to the usage of the run; `size_bytes` may be negative."""
        self._used_bytes += size_bytes
        self._budget.add(self.user, size_bytes)

    def make_room(self) -> bool:
        """Evict ended runs in favour of this one; return False if the usage still exceeds a limit."""
        return self._budget.make_room(self.user)

    def close(self) -> None:
        """Remove the whole usage of the run."""
        self.add(-self._used_bytes)
        # Files that are dropped later are no longer counted.
        self._budget = MemoryBudget()
