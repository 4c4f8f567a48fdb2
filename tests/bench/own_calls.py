"""A scripted model that calls a tool, for Open WebUI's own loop with its own tool, and for an agent of Callboard."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench.webui import OpenWebUI
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text

TOOL = Path(__file__).with_name("own_tool.py")
IN_ROUNDS = "one after the other"
"""A question with these words gets one call in each round, any other all calls in one round."""


@asynccontextmanager
async def calling_model(calls: int) -> AsyncIterator[OpenAIServer]:
    """An endpoint whose model makes that many calls, and then writes a line for each."""

    def script(body: Body) -> Answer:
        question = max(number for number, one in enumerate(body["messages"]) if one["role"] == "user")
        done = len([one for one in body["messages"][question:] if one["role"] == "tool"])
        if done == calls:
            return chunks(text("".join(f"Step {number}.\n" for number in range(calls))), finish("stop"))
        count = 1 if IN_ROUNDS in str(body["messages"][question]["content"]) else calls
        made = (
            call("read_file", json.dumps({"path": f"/books/{number}"}), index=index, call_id=f"call_{number:04d}")
            for index, number in enumerate(range(done, done + count))
        )
        return chunks(*made, finish("tool_calls"))

    async with OpenAIServer(script) as endpoint:
        yield endpoint


async def add_own_model(webui: OpenWebUI, endpoint: OpenAIServer, name: str, chars: int) -> None:
    """Add a model of Open WebUI over the endpoint, with a tool of Open WebUI whose results are that long."""
    await webui.connect(endpoint.base_url, f"base_{name}")
    await webui.add_tool(name, TOOL.read_text("utf-8").replace("CHARS = 0", f"CHARS = {chars}"))
    await webui.add_model(name, f"base_{name}", tool_ids=[name])


@asynccontextmanager
async def own_calls(webui: OpenWebUI, calls: int, chars: int) -> AsyncIterator[str]:
    """The id of a model that makes that many calls of a tool whose results are that long."""
    name = f"own_{calls}_{chars}"
    async with calling_model(calls) as endpoint:
        await add_own_model(webui, endpoint, name, chars)
        yield name
