"""What every way of streaming has to say: chunks of text, and a tool call after every sixtieth.

Who is asked for the story reads the number of chunks from the question. The pipes in `pipes` cannot import this module,
because they run inside Open WebUI: each writes the chunks out by itself.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart, ToolStatus, ToolStatusData
from tests.bench.report import FULL, SMOKE

CHUNKS = {FULL: 3_000, SMOKE: 120}
CHUNKS_PER_CALL = 60
RESULT_CHARS = 1_000
LINE_CHUNKS = 10
MODEL = "story"


def chunk(number: int) -> str:
    """Twelve characters that no other chunk has; every tenth ends a line."""
    return f"chunk {number:04d}." + (" " if (number + 1) % LINE_CHUNKS else "\n")


@cache
def chunks(count: int) -> tuple[str, ...]:
    return tuple(chunk(number) for number in range(count))


def call_count(chunk_count: int) -> int:
    """The number of calls among so many chunks."""
    return chunk_count // CHUNKS_PER_CALL


def result(number: int, chars: int = RESULT_CHARS) -> str:
    return f"result {number:04d} ".ljust(chars, "x")


def text_only(count: int) -> Iterator[Event]:
    """The text alone."""
    for piece in chunks(count):
        yield Message(content=piece)


def with_calls(count: int) -> Iterator[Event]:
    """The text, and a call with one status after every sixtieth chunk."""
    for number, piece in enumerate(chunks(count), 1):
        yield Message(content=piece)
        if number % CHUNKS_PER_CALL == 0:
            yield from call(number // CHUNKS_PER_CALL - 1)


def call(number: int, statuses: int = 1, result_chars: int = RESULT_CHARS) -> Iterator[Event]:
    """One tool call, start to end."""
    call_id = f"call_{number:04d}"
    yield ToolCallStart(tool_call_id=call_id, tool_name="read_file", tool_args={"path": f"/books/{number}"})
    for step in range(1, statuses + 1):
        data = ToolStatusData(status="processing", message=f"Reading page {step}", progress=step * 100 / (statuses + 1))
        yield ToolStatus(tool_call_id=call_id, data=data)
    yield ToolCallComplete(tool_call_id=call_id, tool_name="read_file", result=result(number, result_chars))


def openai_frames(count: int) -> Iterator[bytes]:
    """The text as an OpenAI-compatible endpoint streams it."""
    yield _openai_frame({"role": "assistant", "content": ""}, None)
    for piece in chunks(count):
        yield _openai_frame({"content": piece}, None)
    yield _openai_frame({}, "stop")
    yield b"data: [DONE]\n\n"


def _openai_frame(delta: dict[str, Any], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    return b"data: " + json.dumps(frame).encode() + b"\n\n"
