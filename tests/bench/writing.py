"""Many chats written at once: nothing may be lost, and nobody may wait long."""

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path

from callboard._history import HistoryCall, Turn
from callboard.storage import Store
from tests.bench.report import Target, milliseconds, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.storage.turns import RecordedSteps

CHATS = {FULL: 50, SMOKE: 2}
ROUNDS = 10
CALLS_PER_ROUND = 3
STATUSES_PER_CALL = 4
RESULT = "x" * 2_000
MAX_WAIT_SECONDS = 1.0


class Waits:
    """How long each write took, waiting for its turn included, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def on(self, write: Awaitable[object]) -> None:
        began = time.perf_counter()
        await write
        self.seconds.append(time.perf_counter() - began)

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[round(share * (len(self.seconds) - 1))]


async def measure_writing(folder: Path, size: Size) -> list[Target]:
    """Writes the chats and reads them back."""
    chats = CHATS[size]
    store = await Store.open(f"sqlite+aiosqlite:///{folder / 'many.db'}")
    waits = Waits()
    try:
        began = time.perf_counter()
        await asyncio.gather(*(_write(store, f"chat-{number}", waits) for number in range(chats)))
        seconds = time.perf_counter() - began
        lost = sum([await _lost(store, f"chat-{number}") for number in range(chats)])
    finally:
        await store.close()
    slowest = max(waits.seconds)
    shares = [milliseconds(waits.percentile(share)) for share in (0.5, 0.99)]
    print_table(
        f"{chats} chats written at once to one SQLite file",
        ("writes", "seconds", "writes/s", "median ms", "p99 ms", "slowest ms", "lost"),
        [
            (
                f"{len(waits.seconds):,}",
                f"{seconds:.1f}",
                f"{len(waits.seconds) / seconds:,.0f}",
                *shares,
                milliseconds(slowest),
                lost,
            )
        ],
    )
    return [
        Target(f"lost rows of {chats} chats written at once", lost, 0, "rows"),
        Target("longest wait of a write", slowest, MAX_WAIT_SECONDS, "s"),
    ]


async def _write(store: Store, chat_id: str, waits: Waits) -> None:
    journal = await RecordedSteps.open(store, Turn(chat_id, f"run-{chat_id}", "message", None, "Question?"))
    await waits.on(journal.begin())
    for round_index in range(ROUNDS):
        ids = [f"call_{round_index}_{index}" for index in range(CALLS_PER_ROUND)]
        for index, call_id in enumerate(ids):
            call = HistoryCall(call_id, "read_file", '{"path": "/books/1"}', round_index, index)
            await waits.on(journal.call_started(call, f"Round {round_index}. " if index == 0 else ""))
        # The calls of a round run side by side, as the tool loop runs them.
        await asyncio.gather(*(_run(journal, call_id, waits) for call_id in ids))
    await waits.on(journal.finish("Answer.", is_answered=True))


async def _run(journal: RecordedSteps, call_id: str, waits: Waits) -> None:
    for step in range(STATUSES_PER_CALL):
        await waits.on(journal.call_progressed(call_id, "processing", f"Step {step}", step * 25.0))
    await waits.on(journal.call_ended(call_id, RESULT, None, 12))


async def _lost(store: Store, chat_id: str) -> int:
    """How many of the rows that were written are not there, whole."""
    chats = store.chats(None)
    calls = await chats.timeline(chat_id)
    whole = [call for call in calls if call.result == RESULT]
    steps = [[status.message for status in call.events] for call in calls]
    in_order = sum(len(step) for step in steps if step == [f"Step {step}" for step in range(STATUSES_PER_CALL)])
    stored = await chats.messages(chat_id)
    texts = [message.content for message in stored if message.role == "assistant" and message.content]
    expected_texts = [*(f"Round {round_index}. " for round_index in range(ROUNDS)), "Answer."]
    written = ROUNDS * CALLS_PER_ROUND
    return (
        (written - len(whole))
        + (written * STATUSES_PER_CALL - in_order)
        + (0 if texts == expected_texts else len(expected_texts))
        + (0 if stored and stored[0].role == "user" else 1)
    )
