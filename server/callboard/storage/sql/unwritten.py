"""Turns whose run has ended and that the database did not take: kept in memory until it does.

Written in the order in which their runs ended: with the next write that succeeds, before a later
turn of the same chat is loaded or written, every few seconds, and once more as the store is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from callboard._history import ChatJournal, HistoryCall
from callboard.errors import StorageError
from callboard.storage.sql.failures import is_trouble

MAX_BYTES = 64 * 1024 * 1024
MAX_TURNS = 500
MAX_MISTAKES = 3
"""How often a turn may fail in a way that nobody expected: those behind it wait for it as long."""
SECONDS_BETWEEN_TRIES = 5
"""The seconds after which a turn that could not be written is tried again, before its end and after."""

_log = structlog.get_logger(__name__)


Write = Callable[[], Awaitable[None]]
"""Writes what is missing of a turn, nothing where its chat or its run takes no more; raises `StorageError` alone."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """What writes a turn that waits, and how often that failed in a way that nobody expected."""

    write: Write
    mistakes: int = 0


class UnwrittenTurns:
    """Turns that are not written: at most `MAX_TURNS`, of `MAX_BYTES` together, the oldest first."""

    def __init__(self) -> None:
        self._turns: dict[ChatJournal, _Waiting] = {}
        self._writing = asyncio.Lock()
        self._works = asyncio.Event()
        self._trying: asyncio.Task[None] | None = None
        self._is_closing = False
        self._failures = 0

    def __len__(self) -> int:
        return len(self._turns)

    def keep(self, journal: ChatJournal, write: Write) -> None:
        """Take a turn that could not be written; where there is no room for it the oldest are dropped."""
        self._turns[journal] = _Waiting(write)
        while len(self._turns) > MAX_TURNS or sum(one.size for one in self._turns) > MAX_BYTES:
            self._drop(next(iter(self._turns)), "there are too many")
        if self._turns and (self._trying is None or self._trying.done()):
            self._trying = asyncio.create_task(self._try_again())

    def calls(self, chat_id: str, user_id: object) -> list[HistoryCall]:
        """Return the calls of a user's chat that are not written, oldest first."""
        return [
            call
            for journal in self._turns
            if (journal.turn.chat_id, journal.turn.user_id) == (chat_id, user_id)
            for call in journal.calls
        ]

    async def write(self, chat_id: str | None = None) -> None:
        """Write what is kept, of one chat or of all, in order.

        Raises `StorageError` where the database takes no writes: that turn and those after it stay. A turn that
        it refuses for what is in it is dropped, and one that fails again and again for nobody knows what.
        """
        if not self._turns:
            return
        failures = self._failures
        async with self._writing:
            if self._failures != failures:
                raise StorageError("what could not be written a moment ago is not tried again yet")
            for journal, waiting in list(self._turns.items()):
                if chat_id not in (None, journal.turn.chat_id):
                    continue
                try:
                    await waiting.write()
                except StorageError as error:
                    if error.__cause__ is None or is_trouble(error.__cause__):
                        self._failures += 1
                        raise
                    self._drop(journal, "the database refuses it")
                except Exception as error:
                    # Else it would end what tries again, and hold up all others.
                    _log.error("turn_not_written", chat_id=journal.turn.chat_id, exc_info=error)
                    waiting.mistakes += 1
                    if waiting.mistakes < MAX_MISTAKES:
                        self._failures += 1
                        raise StorageError("a turn that waits cannot be written: the server's log says why") from error
                    self._drop(journal, "it fails again and again")
                else:
                    # It may have been dropped while it was written.
                    self._turns.pop(journal, None)

    def wake(self) -> None:
        """Try again now: something else was written."""
        self._works.set()

    async def close(self) -> None:
        """Write what is kept, if it can be; what cannot is lost."""
        self._is_closing = True
        self._works.set()
        if self._trying:
            await self._trying
        try:
            await self.write()
        except StorageError:
            _log.warning("turns_lost", turns=len(self._turns))
            self._turns.clear()
        self._is_closing = False

    async def _try_again(self) -> None:
        while self._turns and not self._is_closing:
            self._works.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS_BETWEEN_TRIES):
                    await self._works.wait()
            if not self._is_closing:
                with suppress(StorageError):
                    await self.write()

    def _drop(self, journal: ChatJournal, reason: str) -> None:
        _log.warning("turn_lost", chat_id=journal.turn.chat_id, reason=reason)
        self._turns.pop(journal, None)
