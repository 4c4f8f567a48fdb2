"""A journal whose trouble costs no answer: what cannot be written is said once, and the run goes on."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from callboard._history import HistoryCall, Journal
from callboard.errors import RunLost, StorageError, UnknownChat
from callboard_protocol import Event, Status

NOT_REMEMBERED = "The server cannot reach its memory just now: this answer goes on without it."
REMEMBERED_AFTER_ALL = "The server reaches its memory again: this answer is kept after all."

RETRY_SECONDS = 0.5

_log = structlog.get_logger(__name__)


class ForgivingJournal:
    """The journal of one run, without its `StorageError`s: their user reads of them in what is given to `send`.

    What cannot be written is tried again for `patience_seconds`, until it has failed once.
    """

    def __init__(self, journal: Journal, send: Callable[[Event], None], patience_seconds: float = 0.0) -> None:
        self._journal = journal
        self._send = send
        self._patience_seconds = patience_seconds
        self._has_failed = False
        self._is_trouble_shown = False

    async def begin(self) -> None:
        """Write the chat and the user's message."""
        await self._write(self._journal.begin())

    async def call_started(self, call: HistoryCall, text_before: str) -> None:
        """Write the call, before it runs."""
        await self._write(self._journal.call_started(call, text_before))

    async def call_progressed(self, tool_call_id: str, status: str, message: str, progress: float | None) -> None:
        """Write one step of a call."""
        await self._write(self._journal.call_progressed(tool_call_id, status, message, progress))

    async def call_ended(self, tool_call_id: str, output: str, error_code: str | None, duration_ms: int | None) -> None:
        """Write the call's whole result, or what went wrong."""
        await self._write(self._journal.call_ended(tool_call_id, output, error_code, duration_ms))

    async def finish(
        self,
        text: str,
        *,
        is_answered: bool,
        details: Mapping[str, Any] | None = None,
        ending: str | None = None,
    ) -> None:
        """Write the turn's end, and say so where that makes up for what failed before."""
        had_failed = self._has_failed
        writing = self._journal.finish(text, is_answered=is_answered, details=details, ending=ending)
        if await self._write(writing) and had_failed:
            self._send(Status(content=REMEMBERED_AFTER_ALL, done=True))

    def show_trouble(self) -> None:
        """Tell the user, once, that this answer may not be remembered."""
        if not self._is_trouble_shown:
            self._is_trouble_shown = True
            self._send(Status(content=NOT_REMEMBERED, done=True))

    async def _write(self, writing: Awaitable[None]) -> bool:
        """Return whether it is written."""
        try:
            await self._write_patiently(writing)
        except UnknownChat:
            # Another user began it at the same moment: the answer is given, and the chat is theirs.
            return False
        except RunLost:
            raise
        except StorageError as error:
            if not self._has_failed:
                _log.warning("turn_not_written", error=str(error))
        except Exception as error:  # noqa: BLE001 - no mistake of a store may cost an answer
            if not self._has_failed:
                _log.error("turn_not_written", exc_info=error)
        else:
            return True
        self._has_failed = True
        self.show_trouble()
        return False

    async def _write_patiently(self, writing: Awaitable[None]) -> None:
        """Return once it is written; raises the first `StorageError` where that takes too long."""
        try:
            await writing
        except StorageError:
            deadline = time.monotonic() + (0 if self._has_failed else self._patience_seconds)
            while time.monotonic() < deadline:
                await asyncio.sleep(RETRY_SECONDS)
                with suppress(StorageError):
                    return await self._journal.catch_up()
            raise
