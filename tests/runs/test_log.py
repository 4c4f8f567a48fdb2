"""A log that any number of listeners read from any place."""

import asyncio

import pytest

from callboard._runs.log import EventLog
from callboard.errors import LogExpired
from callboard_protocol import Message
from tests.runs.promises import read


async def heard(log: EventLog, after: int = 0) -> list[tuple[int, str]]:
    stream = b"".join([chunk async for chunk in log.tail(after)])
    return [(seq, event.content) for seq, event in read(stream) if isinstance(event, Message)]


async def test_every_listener_hears_everything_from_where_it_asked() -> None:
    log = EventLog()
    listeners = [asyncio.create_task(heard(log, after)) for after in (0, 0, 2, 5)]
    for number in range(1, 6):
        assert log.append(Message(content=str(number))) == number
        # The listeners hear each by itself.
        await asyncio.sleep(0)
    log.close()
    everything = [(number, str(number)) for number in range(1, 6)]
    assert await asyncio.gather(*listeners) == [everything, everything, everything[2:], []]


async def test_a_closed_log_is_read_and_then_ends() -> None:
    log = EventLog()
    log.append(Message(content="a"))
    log.close()
    assert await heard(log) == [(1, "a")]
    assert await heard(log, after=1) == []


async def test_frames_that_are_ready_travel_together() -> None:
    log = EventLog()
    for number in range(100):
        log.append(Message(content=str(number)))
    log.close()
    assert len([chunk async for chunk in log.tail()]) == 1


async def test_the_oldest_frames_are_let_go_and_asking_for_them_is_an_error() -> None:
    log = EventLog(max_bytes=500)
    for number in range(50):
        log.append(Message(content=str(number)))
    assert log.last_seq == 50
    with pytest.raises(LogExpired, match="event 1 is gone"):
        log.check(0)
    log.close()
    first = (await heard(log, after=45))[0]
    assert first == (46, "45")


async def test_a_listener_that_is_overtaken_is_told_instead_of_skipping_events() -> None:
    log = EventLog(max_bytes=500)
    log.append(Message(content="seen"))
    listener = log.tail()
    await anext(listener)
    for number in range(50):
        log.append(Message(content=str(number)))
    with pytest.raises(LogExpired):
        await anext(listener)
