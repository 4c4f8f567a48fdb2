"""Reports by the thousand become the few that somebody can read, the first and the last among them."""

import asyncio
from collections.abc import Callable

from callboard.calls import Tool, report_status
from callboard.calls.throttle import AT_ONCE, PER_SECOND, Throttle
from tests.calls.conftest import Stage

ByHand = Callable[..., Tool]
MANY = 20_000


async def test_first_last_and_ten_reports_a_second_are_passed_on(stage: Stage, by_hand: ByHand) -> None:
    def floods() -> None:
        for number in range(MANY):
            report_status("processing", str(number))

    began = asyncio.get_running_loop().time()
    await stage.run(by_hand(floods))
    seconds = asyncio.get_running_loop().time() - began
    numbers = [int(report.message) for report in stage.reports]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (0, MANY - 1)
    assert len(numbers) <= AT_ONCE + seconds * PER_SECOND + 1


async def test_waiting_report_is_passed_on_when_it_is_due() -> None:
    passed: asyncio.Queue[int] = asyncio.Queue()
    throttle = Throttle(passed.put_nowait)
    for number in range(3 * AT_ONCE):
        throttle.put(number)
    assert [await passed.get() for _ in range(AT_ONCE + 1)] == [*range(AT_ONCE), 3 * AT_ONCE - 1]


async def test_reports_of_a_thread_and_of_the_loop_keep_their_order(stage: Stage, by_hand: ByHand) -> None:
    async def both() -> None:
        await asyncio.to_thread(report_status, "first")
        report_status("second")

    await stage.run(by_hand(both))
    assert [report.status for report in stage.reports] == ["first", "second"]
