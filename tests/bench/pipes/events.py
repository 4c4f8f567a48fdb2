"""
title: Events
"""

from collections.abc import Awaitable, Callable
from typing import Any


class Pipe:
    """The usual way to show progress: it sends each of the story's chunks as an event."""

    async def pipe(self, body: dict[str, Any], __event_emitter__: Callable[[dict[str, Any]], Awaitable[None]]) -> str:
        for number in range(int(body["messages"][-1]["content"])):
            chunk = f"chunk {number:04d}." + (" " if (number + 1) % 10 else "\n")
            await __event_emitter__({"type": "message", "data": {"content": chunk}})
        return ""
