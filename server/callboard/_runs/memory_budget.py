"""Bounds on what the logs and files of runs take in memory, in bytes: of a run, a user and the whole server.

Where it is too much, ended runs are forgotten first, oldest first; then a log that grows lets go of its own beginning.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


def _evict_nothing(_user: str | None) -> bool:
    return False


@dataclass(slots=True)
class MemoryBudget:
    """The bounds, and what is held. `evict_oldest(user)` forgets that user's oldest ended run, anybody's for None.

    It returns False where there is none.
    """

    max_bytes: float = float("inf")
    max_user_bytes: float = float("inf")
    evict_oldest: Callable[[str | None], bool] = _evict_nothing
    _used_by_user: Counter[str] = field(default_factory=Counter)

    @property
    def used_bytes(self) -> int:
        """What all users' runs take."""
        return self._used_by_user.total()

    def add(self, user: str, size_bytes: int) -> None:
        """Count what a user's run takes more, or less where it is negative."""
        self._used_by_user[user] += size_bytes
        if not self._used_by_user[user]:
            del self._used_by_user[user]

    def make_room(self, user: str) -> bool:
        """Forget ended runs until what is held is within the bounds; return False where it cannot be."""
        while self._used_by_user[user] > self.max_user_bytes:
            if not self.evict_oldest(user):
                return False
        while self._used_by_user.total() > self.max_bytes:
            if not self.evict_oldest(None):
                return False
        return True


class RunMemory:
    """The memory that one run of a user holds."""

    def __init__(self, budget: MemoryBudget | None = None, user: str = "") -> None:
        self._budget = budget or MemoryBudget()
        self.user = user
        self._used_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count what the run takes more, or less where it is negative."""
        self._used_bytes += size_bytes
        self._budget.add(self.user, size_bytes)

    def make_room(self) -> bool:
        """Forget ended runs for this one; return False where there is still too much."""
        return self._budget.make_room(self.user)

    def close(self) -> None:
        """Count nothing of the run any more: it is forgotten."""
        self.add(-self._used_bytes)
