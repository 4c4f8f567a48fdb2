"""
title: Strings
"""

from collections.abc import AsyncIterator
from typing import Any


class Pipe:
    """The least that a pipe can do: it yields the story's chunks as strings."""

    async def pipe(self, body: dict[str, Any]) -> AsyncIterator[str]:
        return self.chunks(int(body["messages"][-1]["content"]))

    async def chunks(self, count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield f"chunk {number:04d}." + (" " if (number + 1) % 10 else "\n")
