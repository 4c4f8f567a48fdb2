"""How many bytes the pipe hands to Open WebUI for each byte of the final content.

Changes in place are re-emitted, so this is where a rendering that is careless would grow without bound.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard_protocol import Done, Event, Message
from tests.bench import story
from tests.bench.feeds import feed
from tests.bench.report import Target, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.pipe.loader import PIPE

CALLS = {FULL: 200, SMOKE: 5}
CALL_RESULT_CHARS = 2_000
STATUSES = 2
METADATA = {"chat_id": "chat", "message_id": "message", "session_id": "session"}
BODY = {"model": "callboard.story", "stream": True, "messages": [{"role": "user", "content": "Tell it."}]}


@dataclass(frozen=True, slots=True)
class Handed:
    """All that was handed over for one answer; `handed_bytes` as JSON, `content` as Open WebUI puts it together."""

    updates: int
    handed_bytes: int
    content: str

    @classmethod
    def of(cls, updates: list[dict[str, Any]]) -> "Handed":
        return cls(len(updates), sum(len(json.dumps(update)) for update in updates), _content(updates))

    def row(self, what: str, pace: str) -> tuple[object, ...]:
        ratio = self.handed_bytes / len(self.content)
        handed = f"{self.handed_bytes / 1000:,.0f}"
        final = f"{len(self.content) / 1000:,.0f}"
        return what, pace, f"{self.updates:,}", handed, final, f"{ratio:.1f}"


def calls_among_text(calls: int) -> Iterator[Event]:
    """Each call begins a group of its own."""
    for number in range(calls):
        yield Message(content=f"Step {number}.\n")
        yield from story.call(number, STATUSES, CALL_RESULT_CHARS)


def calls_in_a_row(calls: int) -> Iterator[Event]:
    """All calls in one group, which is re-emitted whole."""
    for number in range(calls):
        yield from story.call(number, STATUSES, CALL_RESULT_CHARS)


async def measure_handing(_: Path, size: Size) -> list[Target]:
    """Prints the table; it has no targets."""
    chunks = story.CHUNKS[size]
    calls = CALLS[size]
    told: dict[str, list[Event]] = {
        f"{chunks:,} chunks, {story.call_count(chunks)} calls": [*story.with_calls(chunks)],
        f"{calls} calls, text between": [*calls_among_text(calls)],
        f"{calls} calls in a row": [*calls_in_a_row(calls)],
    }
    rows = []
    for what, events in told.items():
        rows.append((await _as_it_comes(events)).row(what, "as fast as it comes"))
        rows.append(_each_change(events).row(what, "each change by itself"))
    headings = ("answer", "events", "updates", "handed kB", "content kB", "handed ÷ content")
    print_table("What the pipe hands to Open WebUI", headings, rows)
    return []


async def _as_it_comes(events: Iterable[Event]) -> Handed:
    """Through the pipe's own generator, from a server that sends as fast as it can."""
    async with feed(events) as server:
        pipe = PIPE.Pipe()
        pipe.valves.CALLBOARD_URL = server.url
        answer = await pipe.pipe(BODY, __metadata__=METADATA)
        updates = [update async for update in answer]
        # The pipe takes its leave of the server in the background.
        await asyncio.gather(*PIPE.background_tasks)
    return Handed.of(updates)


def _each_change(events: Iterable[Event]) -> Handed:
    """The most that can be handed over: so slowly that no two changes share a beat."""
    transcript = PIPE.Transcript()
    emitter = PIPE.StreamEmitter()
    updates = []
    seconds = 0.0
    for event in (*events, Done()):
        transcript.apply(event.model_dump())
        seconds += 1.0
        updates += emitter.updates(transcript, seconds, final=transcript.ended)
    return Handed.of(updates)


def _content(updates: Iterable[dict[str, Any]]) -> str:
    texts: dict[int, str] = {}
    for update in updates:
        match update:
            case {"type": "response.output_text.delta", "output_index": index, "delta": delta}:
                texts[index] = texts.get(index, "") + delta
            case {"type": "response.output_text.done", "output_index": index, "text": text}:
                texts[index] = text
            case {"type": "response.completed", "response": {"output": items}}:
                texts = {index: item["content"][0]["text"] for index, item in enumerate(items)}
    return "\n".join(text for _, text in sorted(texts.items()))
