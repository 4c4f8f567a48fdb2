"""An agent for tests that kill servers: it writes text while its call is open."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

from callboard import register
from callboard.agents import RunContext
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart, ToolStatus, ToolStatusData


@dataclass(frozen=True, slots=True)
class Talking:
    """Calls two tools at the server that is killed, one of which never ends; at the next server it only writes."""

    agent_id: str = "careful"
    name: str = "Talking"
    description: str = "Talks while it calls a tool."
    on_owner_loss: str = "continue"

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        if "CALLBOARD_TEST_HANGS" in os.environ:
            call_id, ended = context.claim_tool_call_id("c1"), context.claim_tool_call_id("c2")
            yield ToolCallStart(tool_call_id=call_id, tool_name="sell")
            yield ToolCallStart(tool_call_id=ended, tool_name="look")
            yield Message(content="It is free. ")
            yield ToolCallComplete(tool_call_id=ended, result="free")
            yield Message(content="I wait for ")
            yield ToolStatus(tool_call_id=call_id, data=ToolStatusData(status="processing"))
            await asyncio.Event().wait()
        yield Message(content="I do not know.")


register(Talking())
