"""The record of a run: which events share a transaction, and which do not wait for others."""

import asyncio
from collections.abc import Callable

import pytest

from callboard._history import Turn
from callboard.storage import Store
from callboard.storage.sql import run_record
from callboard.storage.sql.run_record import RunRecord
from callboard.storage.values import StoredFrame
from tests.storage.turns import RecordedSteps

TURN = Turn(chat_id="chat", run_id="run", message_id="m1", user_id="ann", user_content="What is new?")


@pytest.fixture
async def record(store: Store, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    """A record that has just stored an event, and whose next events wait a minute for more."""
    monkeypatch.setattr(run_record, "GATHER_SECONDS", 60.0)
    steps = await RecordedSteps.open(store, TURN)
    assert await steps.begin()
    return steps.record


class AddingListener:
    """Appends a third event when the second one is shown."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self.on_lost: Callable[[], None] = lambda: None

    def on_shown(self, seq: int) -> None:
        if seq == 2:
            # After the transaction, and before the task that waits for it goes on.
            asyncio.get_running_loop().call_soon(self._record.append, StoredFrame(b"third"))

    def on_stored(self) -> None: ...
    def on_rows_dropped(self) -> None: ...
    def on_unstored(self) -> None: ...


async def test_events_are_stored_at_once_while_a_task_waits_for_them(record: RunRecord) -> None:
    record.report_to(AddingListener(record))
    record.append(StoredFrame(b"second"))
    async with asyncio.timeout(20):
        await record.wait_until_stored()
    assert await record.read(1, 1000) == [b"second", b"third"]


async def test_a_released_run_has_its_last_events(record: RunRecord) -> None:
    record.append(StoredFrame(b"second"))
    assert await record.release()
    assert await record.read(1, 1000) == [b"second"]
