"""What an event costs the server: bytes of the stream, statements and transactions of the database, time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard.agents import RunContext
from callboard_protocol import Event, Message
from tests.bench import story
from tests.bench.report import Target, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.bench.statements import counted
from tests.serving import Script, ScriptedAgent, Service, request, serving

SLOW_CHUNKS = {FULL: 40, SMOKE: 4}
# Slower than the server joins text.
SLOW_SECONDS = 0.03
CALLS = {FULL: 100, SMOKE: 2}
STATUSES = 20
REPETITIONS = {FULL: 3, SMOKE: 1}
HEADINGS = ("event", "bytes", "statements", "transactions", "ms")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a whole run costs."""

    stream_bytes: float
    statements: float
    transactions: float
    seconds: float

    def over(self, other: "Cost", events: int) -> "Cost":
        """What each of the events costs by which this run has more than the other."""
        return Cost(
            (self.stream_bytes - other.stream_bytes) / events,
            (self.statements - other.statements) / events,
            (self.transactions - other.transactions) / events,
            (self.seconds - other.seconds) / events,
        )

    def row(self, what: str) -> tuple[object, ...]:
        counts = (self.statements, self.transactions)
        return what, f"{self.stream_bytes:,.0f}", *(f"{n:.2f}" for n in counts), f"{self.seconds * 1000:.2f}"


def tool_calls(count: int, statuses: int = 0) -> Iterator[Event]:
    for number in range(count):
        yield from story.call(number, statuses)


def slowly(chunks: int) -> Script:
    """An agent's script that says so many chunks, too slowly for the server to join them."""

    async def script(_: RunContext) -> AsyncIterator[Event]:
        for number in range(chunks):
            yield Message(content=story.chunk(number))
            await asyncio.sleep(SLOW_SECONDS)

    return script


def telling(tell: Callable[[], Iterator[Event]]) -> Script:
    """An agent's script that yields these events as fast as it can."""

    async def script(_: RunContext) -> AsyncIterator[Event]:
        for event in tell():
            yield event

    return script


async def measure_events(folder: Path, size: Size) -> list[Target]:
    """Prints the table; it has no targets."""
    chunks = story.CHUNKS[size]
    slow_chunks = SLOW_CHUNKS[size]
    calls = CALLS[size]
    agents = [
        ScriptedAgent(telling(lambda: iter(())), "nothing"),
        ScriptedAgent(telling(lambda: story.text_only(chunks)), "text"),
        ScriptedAgent(slowly(slow_chunks), "slow-text"),
        ScriptedAgent(telling(lambda: tool_calls(calls)), "calls"),
        ScriptedAgent(telling(lambda: tool_calls(calls, STATUSES)), "statuses"),
    ]
    async with serving(folder, *agents) as service:
        cost = {agent.agent_id: await _least(service, agent.agent_id, REPETITIONS[size]) for agent in agents}
    waited = Cost(0, 0, 0, slow_chunks * SLOW_SECONDS)
    slow = cost["slow-text"].over(cost["nothing"], 1).over(waited, slow_chunks)
    rows = [
        cost["nothing"].row("a run that says nothing"),
        cost["text"].over(cost["nothing"], chunks).row("a text chunk, as fast as it comes"),
        slow.row("a text chunk, too slow to be joined"),
        cost["calls"].over(cost["nothing"], calls).row(f"a tool call with {story.RESULT_CHARS:,} characters"),
        cost["statuses"].over(cost["calls"], calls * STATUSES).row("a status"),
    ]
    print_table("What an event costs the server", HEADINGS, rows)
    return []


async def _least(service: Service, agent: str, repetitions: int) -> Cost:
    """The quickest of some runs: what comes on top is noise."""
    runs = [await _run(service, agent, repetition) for repetition in range(repetitions)]
    return min(runs, key=lambda cost: cost.seconds)


async def _run(service: Service, agent: str, repetition: int) -> Cost:
    body: dict[str, Any] = request(agent=agent, chat_id=f"{agent}-{repetition}", message_id="message")
    began = time.perf_counter()
    received = 0
    with counted() as statements:
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for chunk in response.aiter_bytes():
                received += len(chunk)
    seconds = time.perf_counter() - began
    return Cost(received, statements.executed, statements.committed, seconds)
