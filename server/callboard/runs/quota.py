"""Daily quotas of tool calls and tokens for each user, counted in the database that all servers share.

If the database cannot be read or written, nothing is counted and no request is refused.
"""

import asyncio
from datetime import timedelta
from functools import partial

import structlog

from callboard.calls.call import Spend, spend_nothing
from callboard.errors import QuotaExceeded, StorageError, ToolLimit
from callboard.observers import ModelAnswered, Observation, ObservedRun, Observer, RunLeft
from callboard.storage import Store
from callboard_protocol import Done, Error

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
