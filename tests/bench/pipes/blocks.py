"""
title: Blocks
"""

import html
import json
from collections.abc import Awaitable, Callable
from typing import Any

# The benchmark writes its own numbers in here.
CALLS = 0
CHARS = 0


class Pipe:
    """The usual way to show tool calls: each finished one is appended as a block, by an event."""

    async def pipe(self, body: dict[str, Any], __event_emitter__: Callable[[dict[str, Any]], Awaitable[None]]) -> str:
        answer = ""
        for number in range(CALLS):
            block = self.block(number)
            answer += block
            await __event_emitter__({"type": "message", "data": {"content": block}})
        # What went through events alone is lost when the answer ends.
        return answer

    def block(self, number: int) -> str:
        arguments = html.escape(json.dumps({"path": f"/books/{number}"}))
        result = html.escape(json.dumps(f"result {number:04d} ".ljust(CHARS, "x")))
        return (
            f'\n<details type="tool_calls" done="true" id="call_{number:04d}" name="read_file" '
            f'arguments="{arguments}" result="{result}">\n<summary>Tool Executed</summary>\n</details>\n'
            f"Step {number}.\n"
        )
