"""The log of a run delivers its events to any number of listeners, from any event on."""

import asyncio

import pytest

from callboard.errors import LogExpired
from callboard.runs import log as log_module
from callboard.runs.limits import MemoryBudget, RunMemory
from callboard.runs.log import EventLog
from callboard_protocol import Message
from tests.measuring import measuring_memory
from tests.runs.promises import read


async def read_log(log: EventLog, after: int = 0) -> list[tuple[int, str]]:
    stream = b"".join([chunk async for chunk in log.tail(after)])
    return [(seq, event.content) for seq, event in read(stream) if isinstance(event, Message)]


async def test_every_listener_gets_all_events_after_its_number() -> None:
    log = EventLog()
    listeners = [asyncio.create_task(read_log(log, after)) for after in (0, 0, 2, 5)]
    for number in range(1, 6):
        log.append(Message(content=str(number)))
        assert log.last_seq == number
        # Let the listeners read after each event.
        await asyncio.sleep(0)
    log.close()
    everything = [(number, str(number)) for number in range(1, 6)]
    assert await asyncio.gather(*listeners) == [everything, everything, everything[2:], []]


async def test_oldest_frames_of_a_full_log_are_dropped_and_reading_them_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "MAX_LOG_BYTES", 500)
    log = EventLog()
    log.append(Message(content="0"))
    slow = log.tail()
    await anext(slow)
    for number in range(1, 50):
        log.append(Message(content=str(number)))
    assert log.last_seq == 50
    with pytest.raises(LogExpired):
        await anext(slow)
    with pytest.raises(LogExpired, match="event 1 is no longer available"):
        log.check(0)
    log.close()
    assert await read_log(log, after=47) == [(48, "47"), (49, "48"), (50, "49")]
    assert len([chunk async for chunk in log.tail(47)]) == 1


async def test_listener_that_stops_reading_keeps_no_frames_of_a_log_that_is_dropped() -> None:
    budget = MemoryBudget()
    log = EventLog(RunMemory(budget))
    listener = log.tail()
    with measuring_memory() as memory:
        for _ in range(100):
            log.append(Message(content="x" * 100_000))
        await anext(listener)
        log.drop()
    # The frames of its chunk.
    assert memory.kept_bytes < 1_000_000 < memory.peak_bytes
    assert budget.used_bytes == 0
    with pytest.raises(LogExpired):
        await anext(listener)
