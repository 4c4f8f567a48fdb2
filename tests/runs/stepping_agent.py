"""An agent for the crash test: two rounds of calls, slow enough to kill its server between any two events."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from callboard import register
from callboard.agents import RunContext
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart, ToolStatus, ToolStatusData

RESULT = "a whole result " * 200
STEP_SECONDS = 0.01
"""The time between two events, in which the test kills the server."""


@dataclass(frozen=True)
class Stepping:
    agent_id: str = "stepping"
    name: str = "Stepping"
    description: str = "One step at a time."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        for event in steps():
            await asyncio.sleep(STEP_SECONDS)
            yield event


def steps() -> list[Event]:
    return [
        Message(content="Let me look. "),
        ToolCallStart(tool_call_id="a", tool_name="one", tool_args='{"n": 1}'),
        ToolCallStart(tool_call_id="b", tool_name="two", tool_args='{"n": 2}'),
        ToolStatus(tool_call_id="b", data=ToolStatusData(status="processing", progress=50)),
        ToolCallComplete(tool_call_id="b", result=RESULT),
        ToolCallComplete(tool_call_id="a", result=RESULT),
        Message(content="One more."),
        ToolCallStart(tool_call_id="c", tool_name="three", tool_args="{}"),
        ToolCallComplete(tool_call_id="c", result=RESULT),
        Message(content="Done."),
    ]


register(Stepping())
