"""RunSlots for runs: so many in all and of one user; a few more wait a short while for their turn."""

import asyncio
from collections import Counter, deque

from callboard.errors import TooManyRuns

MAX_WAITING = 200
MAX_WAITING_OF_USER = 10


class RunSlots:
    """The places of a server's runs: `total` of them, `per_user` for each user; those who name none are one user.

    Who finds none waits for at most `wait_seconds`.
    """

    def __init__(self, total: int, per_user: int, wait_seconds: float) -> None:
        self._total = total
        self._per_user = per_user
        self._wait_seconds = wait_seconds
        self._taken: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def acquire(self, user: str, *, without_timeout: bool = False) -> None:
        """Take a place, in turn. Raises `TooManyRuns` where none gets free in time, or too many wait already.

        Who is patient waits for as long as it takes.
        """
        if self._has_room(user):
            self._taken[user] += 1
            return
        of_user = sum(waiting == user for waiting, _ in self._waiting)
        is_crowded = len(self._waiting) >= MAX_WAITING or of_user >= MAX_WAITING_OF_USER
        if not without_timeout and (is_crowded or not self._wait_seconds):
            raise self._refuse(user)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((user, turn))
        try:
            await asyncio.wait({turn}, timeout=None if without_timeout else self._wait_seconds)
        except asyncio.CancelledError:
            if turn.done():
                self.release(user)
            raise
        finally:
            if not turn.done():
                self._waiting.remove((user, turn))
        if not turn.done():
            raise self._refuse(user)

    def release(self, user: str) -> None:
        """Leave a place to whoever is next."""
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]
        for waiting in list(self._waiting):
            next_user, turn = waiting
            if self._has_room(next_user):
                self._waiting.remove(waiting)
                self._taken[next_user] += 1
                turn.set_result(None)

    def _has_room(self, user: str) -> bool:
        return self._taken[user] < self._per_user and self._taken.total() < self._total

    def _refuse(self, user: str) -> TooManyRuns:
        if self._taken[user] >= self._per_user:
            return TooManyRuns(f"{self._per_user} runs of this user are under way: try again when one has ended")
        return TooManyRuns(f"{self._total} runs are under way: try again in a moment")
