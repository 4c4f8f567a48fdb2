"""An agent for tests that kill servers: it begins a call that never ends."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from callboard import RunContext, register
from callboard_protocol import Event, Message, ToolCallStart


@dataclass(frozen=True)
class Hanging:
    agent_id: str = "hanging"
    name: str = "Hanging"
    description: str = "Waits for ever."

    async def run(self, _: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Let me look. ")
        yield ToolCallStart(tool_call_id="a", tool_name="look", tool_args={"n": 1})
        await asyncio.Event().wait()


register(Hanging())
