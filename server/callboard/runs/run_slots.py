"""Limits the number of concurrent runs, of all users and of each user; a short queue waits for free slots."""

import asyncio
from collections import Counter, deque

from callboard.errors import TooManyRuns

MAX_WAITING = 200
MAX_WAITING_OF_USER = 10


class RunSlots:
    """Slots for the runs of a server: `total` slots, at most `per_user` for one user.

    Requests without a user share the user "". `wait_seconds` is the longest time in the queue.
    """

    def __init__(self, total: int, per_user: int, wait_seconds: float) -> None:
        self._total = total
        self._per_user = per_user
        self._wait_seconds = wait_seconds
        self._taken: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def queued(self) -> int:
        """The number of requests in the queue."""
        return len(self._waiting)

    async def acquire(self, user: str, *, without_timeout: bool = False) -> None:
        """Take a slot; wait in the queue if none is free.

        Raises `TooManyRuns` if the queue is full or no slot is released in time; with `without_timeout` it waits as
        long as necessary.
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
        """Release a slot of `user`, and give free slots to the queue, in order."""
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
