"""
title: Dicts
"""

from collections.abc import AsyncIterator
from typing import Any

PLACE = {"item_id": "m", "output_index": 0, "content_index": 0}


class Pipe:
    """Callboard's channel with nothing joined: each of the story's chunks is a Responses-style dict."""

    async def pipe(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        return self.updates(int(body["messages"][-1]["content"]))

    async def updates(self, count: int) -> AsyncIterator[dict[str, Any]]:
        item = {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        for number in range(count):
            chunk = f"chunk {number:04d}." + (" " if (number + 1) % 10 else "\n")
            yield {"type": "response.output_text.delta", **PLACE, "delta": chunk}
