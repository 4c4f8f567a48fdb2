"""Bounds on what the logs and files of runs take in memory, in bytes: of a run, a user and the whole server.

Where it is too much, ended runs are forgotten first, oldest first; then a log that grows lets go of its own beginning.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


def _forget_nothing(_user: str | None) -> bool:
    return False


@dataclass(slots=True)
class Holdings:
    """The bounds, and what is held. `forget_oldest(user)` forgets that user's oldest ended run, anybody's for None.

    It returns False where there is none.
    """

    max_bytes: float = float("inf")
    max_user_bytes: float = float("inf")
    forget_oldest: Callable[[str | None], bool] = _forget_nothing
    _of_users: Counter[str] = field(default_factory=Counter)

    @property
    def taken_bytes(self) -> int:
        """What all users' runs take."""
        return self._of_users.total()

    def add(self, user: str, size_bytes: int) -> None:
        """Count what a user's run takes more, or less where it is negative."""
        self._of_users[user] += size_bytes
        if not self._of_users[user]:
            del self._of_users[user]

    def make_room(self, user: str) -> bool:
        """Forget ended runs until what is held is within the bounds; return False where it cannot be."""
        while self._of_users[user] > self.max_user_bytes:
            if not self.forget_oldest(user):
                return False
        while self._of_users.total() > self.max_bytes:
            if not self.forget_oldest(None):
                return False
        return True


class Account:
    """The memory that one run of a user holds."""

    def __init__(self, holdings: Holdings | None = None, user: str = "") -> None:
        self._holdings = holdings or Holdings()
        self.user = user
        self._held_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count what the run takes more, or less where it is negative."""
        self._held_bytes += size_bytes
        self._holdings.add(self.user, size_bytes)

    def make_room(self) -> bool:
        """Forget ended runs for this one; return False where there is still too much."""
        return self._holdings.make_room(self.user)

    def close(self) -> None:
        """Count nothing of the run any more: it is forgotten."""
        self.add(-self._held_bytes)
        # What is let go of later is counted no longer.
        self._holdings = Holdings()
