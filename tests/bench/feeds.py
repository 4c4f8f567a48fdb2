"""Servers that answer with bytes made beforehand, so that what they cost is not measured.

A feed is a Callboard server whose stream is not joined, or an OpenAI-compatible endpoint. Both send each frame by
itself, as fast as they can or at a pace.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from callboard_protocol import Done, Event, RunStart
from tests.bench import story
from tests.pipe.scripted_server import Answer, ScriptedServer, answer_json, frames

MODELS = {"object": "list", "data": [{"id": story.MODEL, "object": "model", "name": "Story"}]}


@asynccontextmanager
async def feed(events: Iterable[Event], pause_seconds: float = 0) -> AsyncIterator[ScriptedServer]:
    """A Callboard server that tells `events`, with that pause after each."""
    told = [RunStart(run_id="run", agent=story.MODEL), *events, Done()]
    async with ScriptedServer() as server:
        server.on("GET", "models", answer_json(MODELS))
        runs = [frames(event, first=seq) for seq, event in enumerate(told, 1)]
        server.on("POST", "runs", one_by_one(runs, pause_seconds=pause_seconds))
        yield server


@asynccontextmanager
async def openai_feed(chunks: int, on_question: Callable[[], None]) -> AsyncIterator[ScriptedServer]:
    """An OpenAI-compatible endpoint that tells so many chunks of the story, and calls `on_question` first."""
    async with ScriptedServer() as server:
        server.on("GET", "models", answer_json(MODELS))
        server.on("POST", "completions", one_by_one([*story.openai_frames(chunks)], on_question))
        yield server


def one_by_one(
    pieces: Sequence[bytes], on_question: Callable[[], None] = lambda: None, pause_seconds: float = 0
) -> Answer:
    """A stream of these frames, with that pause after each; calls `on_question` first."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        on_question()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            # Not `drain`, which returns at once: the reader could be sent everything in one go.
            await asyncio.sleep(pause_seconds)
        await writer.drain()

    return answer
