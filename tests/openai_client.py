"""The official client against a real server, and an agent that does all that an agent can do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from callboard.agents import AgentLike, RunContext
from callboard_protocol import (
    Done,
    Event,
    Message,
    Plan,
    PlanStep,
    Reasoning,
    Source,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
    Usage,
)
from tests.serving import ScriptedAgent, Service, serving

QUESTION: Any = [{"role": "user", "content": "What do apple and pear mean?"}]
URL = "https://example.org/apple"
STEPS = (PlanStep(id="1", content="Look", state="completed"), PlanStep(id="2", content="Say", state="in_progress"))


async def everything(context: RunContext) -> AsyncIterator[Event]:
    """Thinks, speaks, calls two tools at once, of which one fails, and a third, then answers, plans and cites."""
    yield Reasoning(content="Two words.")
    yield Message(content="Let me see.")
    yield ToolCallStart(tool_call_id="a", tool_name="look_up", tool_args='{"word": "äpple"}')
    yield ToolCallStart(tool_call_id="b", tool_name="borrow", tool_args={})
    yield ToolStatus(tool_call_id="b", data=ToolStatusData(status="processing", message="Asking", progress=30))
    yield ToolStatus(tool_call_id="b", data=ToolStatusData(status="processing", message="Asking", progress=60))
    yield ToolCallError(tool_call_id="b", error="it is lent")
    yield ToolCallComplete(tool_call_id="a", result='a fruit, "round" & <b>red</b>')
    yield Source(source={"name": "Apples", "url": URL}, document=("fruit",), metadata=({"source": URL},))
    yield Source(source={"name": "A book without an address"})
    yield Message(content="\n")
    yield ToolCallStart(tool_call_id="c", tool_name="look_up", tool_args='{"word": "pear"}')
    yield ToolCallComplete(tool_call_id="c", result="another fruit")
    yield Status(content="Writing", done=True)
    yield Message(content="Both are ")
    yield Plan(steps=STEPS)
    yield Message(content="fruits.")
    yield Usage(input_tokens=30, output_tokens=12, total_tokens=42)
    yield Done()


EVERYTHING = ScriptedAgent(everything)


@asynccontextmanager
async def asking(folder: Path, *agents: AgentLike, **values: Any) -> AsyncIterator[tuple[Service, AsyncOpenAI]]:
    """A server for these agents and OpenAI's client for it; `values` are settings."""
    async with serving(folder, *agents, **values) as service:
        base_url = f"{service.client.base_url}/v1"
        # Reading the system's certificates takes longer than many a test.
        http_client = DefaultAsyncHttpxClient(verify=False)
        async with AsyncOpenAI(base_url=base_url, api_key="key", timeout=None, http_client=http_client) as client:
            yield service, client
