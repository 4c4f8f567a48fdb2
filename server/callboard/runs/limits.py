"""The limits of runs: their number at once, their memory, and the daily calls and tokens of a user.

Slots are of one server: a short queue waits for a free one. Memory is that of logs, texts and files, in bytes, for each
user and for the whole server: over a limit, ended runs are evicted first, oldest first; if that is not enough, the
growing log drops its oldest frames. Freed memory is returned to the system. Quotas are counted in the database that all
servers share; if it cannot be read or written, nothing is counted and no request is refused.
"""

import asyncio
import ctypes
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import structlog

from callboard.calls.call import Spend, spend_nothing
from callboard.errors import QuotaExceeded, StorageError, ToolLimit, TooManyRuns
from callboard.observers import ModelAnswered, Observation, ObservedRun, Observer, RunLeft
from callboard.storage import Store
from callboard_protocol import Done, Error

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


CHARS_PER_TOKEN = 4
"""The estimate of an answer's tokens if the endpoint reports none or the stream was interrupted."""

WRITE_SECONDS = 1.0
"""The longest delay before the tokens of an answer are written, together with those of other answers."""

MAX_ANSWER_TOKENS = 10**12
"""The most tokens counted for one answer: an endpoint may report any number, and the sum must fit its column."""

_log = structlog.get_logger(__name__)


class Quota:
    """The most calls and tokens of each user in a day of UTC, 0 for no limit; requests without a user share a quota."""

    def __init__(self, store: Store, max_calls: int, max_tokens: int) -> None:
        self._store = store
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._unwritten: dict[str, int] = {}
        """The tokens of each user that are not in the database yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: dict[asyncio.Task[None], str] = {}
        """The tasks that write tokens, with the users of the tokens."""

    async def check(self, user_id: str, *, with_calls: bool = True) -> None:
        """Raise `QuotaExceeded` if the user has used up the quota of tokens or, `with_calls`, of calls."""
        max_calls = self._max_calls if with_calls else 0
        if not (max_calls or self._max_tokens):
            return
        # Tokens that are being written are neither in `_unwritten` nor in the database.
        if writing := [task for task, user in self._writing.items() if user == user_id]:
            await asyncio.wait(writing)
        try:
            used = await self._store.usage(user_id).today()
        except StorageError as error:
            _log.warning("usage_unknown", error=str(error))
            return
        if self._max_tokens and used.tokens + self._unwritten.get(user_id, 0) >= self._max_tokens:
            raise _make_quota_error(self._max_tokens, "tokens", used.ends_in_seconds)
        if max_calls and used.calls >= max_calls:
            raise _make_quota_error(max_calls, "tool calls", used.ends_in_seconds)

    def spend_of(self, user_id: str) -> Spend:
        """Return the function that counts a call of the user before it runs; it raises `ToolLimit` if none is left."""
        return partial(self._spend_call, user_id) if self._max_calls else spend_nothing

    async def _spend_call(self, user_id: str) -> None:
        try:
            is_counted = await self._store.usage(user_id).take_call(self._max_calls)
        except StorageError as error:
            _log.warning("call_not_counted", error=str(error))
            return
        if not is_counted:
            raise ToolLimit(
                f"Not run: this user has used all {self._max_calls} tool calls of today. The quota starts again at "
                "00:00 UTC. Answer with the information that you have, and say so."
            )

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observer that counts tokens, if they are limited."""
        return (self._count_tokens,) if self._max_tokens else ()

    async def close(self) -> None:
        """Write all tokens that are not in the database yet."""
        self._write_tokens()
        if self._writing:
            await asyncio.wait(self._writing)

    def _count_tokens(self, run: ObservedRun, what: Observation) -> None:
        """Count the tokens of an answer; they are written after `WRITE_SECONDS`, or when the run ends."""
        if isinstance(what, Done | Error | RunLeft):
            self._write_tokens()
        if not isinstance(what, ModelAnswered):
            return
        # Some endpoints report 0 instead of nothing.
        reported = what.usage.total_tokens if what.usage else 0
        tokens = reported if reported > 0 else -(-what.text_chars // CHARS_PER_TOKEN)
        if not tokens:
            return
        user_id = run.user_id or ""
        self._unwritten[user_id] = self._unwritten.get(user_id, 0) + min(tokens, MAX_ANSWER_TOKENS)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write_tokens)

    def _write_tokens(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for user_id, tokens in self._unwritten.items():
            task = asyncio.create_task(self._add_tokens(user_id, tokens), name="count tokens")
            self._writing[task] = user_id
            task.add_done_callback(self._writing.pop)
        self._unwritten.clear()

    async def _add_tokens(self, user_id: str, tokens: int) -> None:
        try:
            await self._store.usage(user_id).add_tokens(tokens)
        except StorageError as error:
            _log.warning("tokens_not_counted", tokens=tokens, error=str(error))


def _make_quota_error(most: int, what: str, ends_in_seconds: float) -> QuotaExceeded:
    hours, minutes = divmod(timedelta(seconds=ends_in_seconds) // timedelta(minutes=1), 60)
    return QuotaExceeded(
        f"You have used all {most:,} {what} of today. The quota starts again at 00:00 UTC, in {hours} h {minutes} min.",
        ends_in_seconds,
    )
