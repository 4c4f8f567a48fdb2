"""The model of the agent of Agno: what it answers in each round of a run, at which pace."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.bench import story
from tests.pipe.scripted_server import Answer

Piece = bytes | Callable[[], bytes]
"""Bytes, or what makes them when they are sent."""


def long_story(chunks: int, calls: int) -> list[Answer]:
    """So many chunks of text in rounds, each of which ends with a call."""
    texts = story.chunks(chunks)
    per_round = chunks // calls
    rounds: list[list[Piece]] = [
        [*map(_text, texts[number * per_round : (number + 1) * per_round]), _call(number)] for number in range(calls)
    ]
    return [*map(_answer, rounds), _answer([_finish("stop")])]


def slow_story(chunks: int, calls: int, seconds: float) -> list[Answer]:
    """Rounds of chunks, each with the time at which it was sent, one every so many seconds, that end with a call."""
    rounds: list[list[Piece]] = [[*[_stamped] * (chunks // calls), _call(number)] for number in range(calls)]
    return [*(_answer(pieces, seconds) for pieces in rounds), _answer([_finish("stop")])]


def short_story() -> list[Answer]:
    """One word."""
    return [_answer([_text("Hello."), _finish("stop")])]


def silence() -> list[Answer]:
    """One word, and then nothing for ever."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        await _answer([_text("Hello.")], end=False)(writer)
        await asyncio.Event().wait()

    return [answer]


def _answer(pieces: Iterable[Piece], seconds: float = 0.0, *, end: bool = True) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for piece in pieces:
            await asyncio.sleep(seconds)
            writer.write(piece if isinstance(piece, bytes) else piece())
        if end:
            writer.write(b"data: [DONE]\n\n")
        await writer.drain()

    return answer


def _stamped() -> bytes:
    return _text(f"sent={time.monotonic_ns()}; ")


def _text(content: str) -> bytes:
    return _frame({"content": content}, None)


def _call(number: int) -> bytes:
    """A call, and the end of its round."""
    function = {"name": "read_file", "arguments": json.dumps({"number": number})}
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
    return _frame({"tool_calls": [call]}, None) + _finish("tool_calls")


def _finish(reason: str) -> bytes:
    return _frame({}, reason)


def _frame(delta: dict[str, Any], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": story.MODEL, "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
