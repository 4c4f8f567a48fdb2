"""The runs that could not be stored in time, in the order in which they became late."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from callboard._history import HistoryCall
from callboard.errors import RunLost, StorageError

if TYPE_CHECKING:
    from callboard.storage.sql.run_record import RunRecord

MAX_ENDED = 500
MAX_ENDED_BYTES = 64 * 1024 * 1024
"""The limits for late runs that have ended; beyond them the oldest are dropped."""

_log = structlog.get_logger(__name__)


class LateRecords:
    """The late records of one database."""

    def __init__(self) -> None:
        self._records: dict[RunRecord, None] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: "RunRecord") -> None:
        """Add a record that has become late."""
        self._records[record] = None
        while ended := self._find_excess():
            _log.warning("turn_lost", chat_id=ended.chat_id, reason="too many runs are waiting to be stored")
            ended.drop()

    def discard(self, record: "RunRecord") -> None:
        """Remove a record that is stored or was given up."""
        self._records.pop(record, None)

    def retry(self) -> None:
        """Retry all records now, because the database has just committed a write."""
        for record in self._records:
            record.retry()

    def calls(self, chat_id: str, user_id: object) -> Sequence[HistoryCall]:
        """Return the calls of late runs in a user's chat, oldest first."""
        return [
            call
            for record in self._records
            if (record.chat_id, record.user_id) == (chat_id, user_id)
            for call in record.calls
        ]

    async def store(self, chat_id: str | None = None, before: "RunRecord | None" = None) -> None:
        """Store the late records of a chat, or of all chats, in order, stopping at `before`.

        Raises `StorageError` if a record cannot be stored.
        """
        for record in tuple(self._records):
            if record is before:
                return
            if record in self._records and chat_id in (None, record.chat_id):
                with suppress(RunLost):
                    await record.store_now()

    async def close(self) -> None:
        """Try to store all records once; drop the rest."""
        try:
            await self.store()
        except StorageError:
            _log.warning("turns_lost", turns=len(self._records))
        for record in tuple(self._records):
            record.stop()

    def _find_excess(self) -> "RunRecord | None":
        """Return the oldest record that has ended if these records are too many or too large together."""
        ended = [record for record in self._records if record.has_ended]
        is_too_much = len(ended) > MAX_ENDED or sum(record.size_bytes for record in ended) > MAX_ENDED_BYTES
        return ended[0] if is_too_much else None
