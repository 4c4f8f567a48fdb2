"""LangGraph, by LangChain's agents."""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from openai import AsyncOpenAI, OpenAI
from pydantic import SecretStr

from callboard.agents import AgentLike
from callboard.frameworks.langgraph import from_langgraph
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.toolbox import PICTURE, Toolbox


@asynccontextmanager
async def agent(base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
    """`from_langgraph(create_agent(…))`."""
    approval = HumanInTheLoopMiddleware(interrupt_on={"wipe": {"allowed_decisions": ["approve", "reject"]}})
    async with chat_model(base_url) as model:
        graph = create_agent(
            model,
            [_tool(name, toolbox) for name in tools],
            middleware=[approval],
            system_prompt=INSTRUCTIONS,
            checkpointer=InMemorySaver(),
            name="agent",
        )
        yield from_langgraph(graph)


@asynccontextmanager
async def chat_model(base_url: str, kind: type[ChatOpenAI] = ChatOpenAI) -> AsyncIterator[ChatOpenAI]:
    """A model whose connections are closed at the end."""
    options: dict[str, Any] = {"base_url": base_url, "api_key": "key", "max_retries": 0, "timeout": None}
    with OpenAI(**options) as waiting:
        async with AsyncOpenAI(**options) as client:
            connections: dict[str, Any] = {
                "client": waiting.chat.completions,
                "async_client": client.chat.completions,
                "root_client": waiting,
                "root_async_client": client,
            }
            yield kind(model="m", api_key=SecretStr("key"), stream_usage=True, **connections)


def _tool(name: str, toolbox: Toolbox) -> BaseTool:
    if name == "paint":
        return tool(name)(_paint)
    return tool(toolbox.plain(name))


async def _paint(what: str) -> list[dict[str, Any]]:
    """Paints."""
    picture = {"type": "image", "base64": base64.b64encode(PICTURE).decode(), "mime_type": "image/png"}
    return [{"type": "text", "text": f"{what}, painted"}, picture]
