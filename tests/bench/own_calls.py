"""Open WebUI's own tool calling with the same calls: its tool, its loop, a scripted model behind its connection."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench.webui import OpenWebUI
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text

TOOL = Path(__file__).with_name("own_tool.py")


@asynccontextmanager
async def own_calls(webui: OpenWebUI, calls: int, chars: int) -> AsyncIterator[str]:
    """The id of a model that makes that many calls of a tool whose results are that long."""

    def script(body: Body) -> Answer:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return chunks(text("".join(f"Step {number}.\n" for number in range(calls))), finish("stop"))
        made = (
            call("read_file", json.dumps({"path": f"/books/{number}"}), index=number, call_id=f"call_{number:04d}")
            for number in range(calls)
        )
        return chunks(*made, finish("tool_calls"))

    name = f"own_{calls}_{chars}"
    async with OpenAIServer(script) as endpoint:
        await webui.connect(endpoint.base_url, f"base_{name}")
        await webui.add_tool(name, TOOL.read_text("utf-8").replace("CHARS = 0", f"CHARS = {chars}"))
        await webui.add_model(name, f"base_{name}", tool_ids=[name])
        yield name
