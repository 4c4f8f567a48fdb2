"""The agents of servers that meet faults: their tools write down that they ran, and their server's clock can be moved.

`SIGUSR1` moves the clock of the process an hour ahead, `SIGUSR2` an hour back.
"""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import agents as openai_agents
import agno.agent
import agno.models.openai
import agno.tools
import pydantic_ai
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from openai import AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from callboard import Agent, Skill, register, report_status, tool
from callboard.frameworks.agno import from_agno
from callboard.frameworks.langgraph import from_langgraph
from callboard.frameworks.openai_agents import from_openai_agents
from callboard.frameworks.pydantic_ai import from_pydantic_ai

RAN = Path(os.environ["CALLBOARD_TEST_RAN"])
HOUR_SECONDS = 3600

_true_time = time.time
_ahead_seconds = 0


def move_clock(number: int, _frame: FrameType | None) -> None:
    """Move the clock that everything in this process reads."""
    global _ahead_seconds
    _ahead_seconds += HOUR_SECONDS if number == signal.SIGUSR1 else -HOUR_SECONDS


time.time = lambda: _true_time() + _ahead_seconds
signal.signal(signal.SIGUSR1, move_clock)
signal.signal(signal.SIGUSR2, move_clock)


def note(tool_name: str, order: str) -> None:
    """Write down that a tool has begun; each line is one write, whoever else writes."""
    file = os.open(RAN, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{tool_name} {order} {os.getpid()}\n".encode())
    os.close(file)


async def sell(order: str) -> str:
    """Sell at once.

    Args:
        order: Its number.
    """
    note("sell", order)
    return f"sell {order}: done"


async def build(order: str, seconds: float) -> str:
    """Build something, which takes a while.

    Args:
        order: Its number.
        seconds: How long.
    """
    note("build", order)
    for step in range(3):
        await asyncio.sleep(seconds / 3)
        report_status("processing", f"step {step + 1}", progress=(step + 1) * 33)
    return f"build {order}: done"


def print_out(order: str, seconds: float) -> str:
    """Print something, in a thread.

    Args:
        order: Its number.
        seconds: How long.
    """
    note("print_out", order)
    time.sleep(seconds)
    return f"print_out {order}: done"


async def look(order: str, seconds: float) -> str:
    """Look something up.

    Args:
        order: Its number.
        seconds: How long.
    """
    note("look", order)
    await asyncio.sleep(seconds)
    return f"look {order}: done"


async def refund(order: str, seconds: float) -> str:
    """Pay something back, once the user agrees: the agent asks.

    Args:
        order: Its number.
        seconds: How long.
    """
    note("refund", order)
    await asyncio.sleep(seconds)
    return f"refund {order}: done"


async def ship(order: str) -> str:
    """Ship something, once the user agrees: the server asks.

    Args:
        order: Its number.
    """
    note("ship", order)
    return f"ship {order}: done"


PLAIN: Sequence[Any] = (sell, build, print_out, look, ship)
OPTIONS: dict[str, Any] = {"base_url": os.environ["CALLBOARD_MODEL_BASE_URL"], "api_key": "key"}

shop_tools: list[Any] = [tool(sell), tool(build), tool(print_out), tool(read_only=True)(look), tool(ship)]
refunds = tool(requires_confirmation=True)(refund)
register(Agent("callboard", skills=[Skill("orders", "Takes orders.", tools=[*shop_tools, refunds])]))
register(
    from_pydantic_ai(
        pydantic_ai.Agent(
            OpenAIChatModel("m", provider=OpenAIProvider(openai_client=AsyncOpenAI(**OPTIONS))),
            name="pydantic_ai",
            tools=[*PLAIN, pydantic_ai.Tool(refund, requires_approval=True)],
        )
    )
)
asks = HumanInTheLoopMiddleware({"refund": {"allowed_decisions": ["approve", "reject"]}})
register(
    from_langgraph(
        create_agent(
            ChatOpenAI(model="m", **{**OPTIONS, "api_key": SecretStr("key")}),
            [*PLAIN, refund],
            middleware=[asks],
            checkpointer=InMemorySaver(),
        ),
        agent_id="langgraph",
    )
)
openai_agents.set_tracing_disabled(True)
register(
    from_openai_agents(
        openai_agents.Agent(
            "openai_agents",
            model=openai_agents.OpenAIChatCompletionsModel("m", AsyncOpenAI(**OPTIONS)),
            tools=[
                *map(openai_agents.function_tool, PLAIN),
                openai_agents.function_tool(refund, needs_approval=True),
            ],
        )
    )
)
register(
    from_agno(
        agno.agent.Agent(
            id="agno",
            model=agno.models.openai.OpenAILike(id="m", **OPTIONS),
            tools=[*PLAIN, agno.tools.tool(requires_confirmation=True)(refund)],
            telemetry=False,
        )
    )
)
