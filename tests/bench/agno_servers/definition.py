"""The agent that all servers are measured with; it runs in AgentOS's environment too, which has no Callboard."""

import time

from agno.agent import Agent
from agno.models.openai import OpenAILike

AGENT = "story"
RESULT_CHARS = 1_000


async def read_file(number: int) -> str:
    """Reads a file; what comes back says when it was read."""
    return f"result {number:04d} called={time.monotonic_ns()}; ".ljust(RESULT_CHARS, "x")


def story_agent(base_url: str) -> Agent:
    """The agent, its model at that address."""
    model = OpenAILike("story", base_url=base_url, api_key="key", max_retries=0)
    return Agent(id=AGENT, name=AGENT, model=model, tools=[read_file], telemetry=False)
