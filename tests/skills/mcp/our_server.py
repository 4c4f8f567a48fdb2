"""An MCP server with the official SDK, whose tools do on request what servers may do: `our_server.py [port]`.

The variable `OUR_INSTRUCTIONS` names a file with its instructions.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ToolAnnotations,
)
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

told = os.environ.get("OUR_INSTRUCTIONS")
server = MCPServer("ours", instructions=Path(told).read_text() if told else None)
cancelled = asyncio.Event()


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(steps: int, context: Context) -> str:
    """Counts aloud."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps, f"step {step}")
    return f"counted to {steps}"


@server.tool()
async def wait(context: Context) -> str:
    """Waits for ever."""
    await context.report_progress(1, None, "waiting")
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.set()
    return "never"


@server.tool()
async def was_cancelled() -> str:
    """Ends once `wait` was cancelled."""
    await cancelled.wait()
    return "yes"


@server.tool()
async def die() -> str:
    """Ends the server without a word."""
    os._exit(3)


@server.tool()
async def grow(context: Context, description: str = "Came later.") -> str:
    """Gives the server another tool, in place of the one that it gave before."""
    with suppress(ToolError):
        server.remove_tool("grown")
    server.add_tool(_grown, "grown", description=description)
    await context.notify_tools_changed()
    return "grown"


@server.tool()
async def shrink(context: Context) -> str:
    """Takes back the tool that `grow` gave."""
    server.remove_tool("grown")
    await context.notify_tools_changed()
    return "shrunk"


def _grown() -> str:
    return "here"


@server.tool(structured_output=False)
async def ask(context: Context, again: bool = False) -> str | InputRequiredResult:
    """Asks the user where they are, and returns what it is answered, or asks again."""
    if context.input_responses and not again:
        return context.input_responses["where"].model_dump_json(exclude_none=True)
    fields = {"town": {"type": "string", "minLength": 2}, "since": {"type": "string", "format": "date-time"}}
    schema = {"type": "object", "properties": fields, "required": ["town"]}
    question = ElicitRequestFormParams(message="Where are you?", requested_schema=schema)
    return InputRequiredResult(input_requests={"where": ElicitRequest(params=question)})


@server.tool(structured_output=False)
async def pay(context: Context) -> str | InputRequiredResult:
    """Asks the user to open an address, and returns what it is answered."""
    if context.input_responses:
        return context.input_responses["paid"].model_dump_json(exclude_none=True)
    question = ElicitRequestURLParams(message="Please pay.", url="https://pay.example/1?for=<b>you</b>")
    return InputRequiredResult(input_requests={"paid": ElicitRequest(params=question)})


@server.tool(structured_output=False)
def big(characters: int) -> str:
    """Says much."""
    return "x" * characters


@server.tool()
def variable(name: str) -> str:
    """Reads one of the server's variables."""
    return os.environ.get(name, "not set")


@server.tool()
async def complain(words: str, context: Context) -> str:
    """Says something as its progress and to standard error."""
    await context.report_progress(1, None, words)
    print(words, file=sys.stderr, flush=True)
    return "said"


@server.tool()
def pid() -> int:
    """The process."""
    return os.getpid()


class Locked:
    """Lets nobody in without the token of the environment, and forbids the method of the variable `OUR_FORBIDDEN`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = os.environ.get("OUR_TOKEN")
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        refused = token is not None and scope["type"] == "http" and headers.get("authorization") != f"Bearer {token}"
        forbidden = os.environ.get("OUR_FORBIDDEN", "-") == headers.get("mcp-method")
        answer = PlainTextResponse("no", 401 if refused else 403) if refused or forbidden else self._app
        await answer(scope, receive, send)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvicorn.run(
            Locked(server.streamable_http_app()), port=int(sys.argv[1]), log_level="error", timeout_graceful_shutdown=1
        )
    else:
        server.run()
