"""An MCP server over HTTP whose tool `build` is a task of the extension for tasks: `task_server.py port folder`.

Each request about a task is a line in the folder's file `log`. At each `tasks/get` the task is one step further. It
goes on after a restart. A task ends when the folder has the file `finish`, after the answer to a question if it is
`asking`, whose first answer is lost, and with an error if it is `failing`.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver.server import require_client_extension
from mcp_types import CallToolRequestParams, RequestParams

FOLDER = Path(sys.argv[2])
FINISH = FOLDER / "finish"
TASKS = "io.modelcontextprotocol/tasks"
TIMES = {"createdAt": "2026-08-01T00:00:00Z", "lastUpdatedAt": "2026-08-01T00:00:00Z", "ttlMs": None}
SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "Where?", "requestedSchema": SCHEMA}}


class Params(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class Tasks(Extension):
    identifier = TASKS

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.updates: Counter[str] = Counter()
        self.answers: dict[str, dict[str, Any]] = {}
        self.cancelled: set[str] = set()

    def methods(self) -> list[MethodBinding]:
        handlers = {"get": self._get, "update": self._update, "cancel": self._cancel}
        return [MethodBinding(f"tasks/{name}", Params, handler) for name, handler in handlers.items()]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        if params.name != "build":
            return await call_next(ctx)
        require_client_extension(ctx, TASKS)
        task_id = f"{(params.arguments or {})['kind']}-{uuid4().hex}"
        self._log(ctx, "tools/call", task_id)
        return {"resultType": "task", **self._show(task_id, "working")}

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: Params) -> HandlerResult:
        task_id = params.task_id
        self._log(ctx, "tasks/get", task_id)
        self.steps[task_id] += 1
        kind = task_id.partition("-")[0]
        if task_id in self.cancelled:
            return self._show(task_id, "cancelled")
        if kind == "failing":
            return self._show(task_id, "failed", error={"code": None, "message": "Connection closed: no bricks"})
        if kind == "sampling":
            asks = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
            return self._show(task_id, "input_required", inputRequests={"what": asks})
        if kind == "asking" and task_id not in self.answers:
            return self._show(task_id, "input_required", inputRequests={"where": QUESTION})
        if kind == "asking" or FINISH.exists():
            text = f"built {self.answers.get(task_id, 'here')}"
            return self._show(task_id, "completed", result={"content": [{"type": "text", "text": text}]})
        return self._show(task_id, "working")

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: Params) -> HandlerResult:
        self._log(ctx, "tasks/update", params.task_id)
        self.updates[params.task_id] += 1
        if self.updates[params.task_id] > 1:
            self.answers[params.task_id] = params.input_responses or {}
        return {}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: Params) -> HandlerResult:
        self._log(ctx, "tasks/cancel", params.task_id)
        self.cancelled.add(params.task_id)
        return {}

    def _show(self, task_id: str, status: str, **fields: Any) -> dict[str, Any]:
        message = f"step {self.steps[task_id]}"
        return {"taskId": task_id, "status": status, "statusMessage": message, "pollIntervalMs": 100, **TIMES, **fields}

    def _log(self, ctx: ServerRequestContext[Any, Any], method: str, task_id: str) -> None:
        name = ctx.request.headers["mcp-name"] if ctx.request else ""
        assert method == "tools/call" or name == task_id
        with Path(FOLDER, "log").open("a") as log:
            log.write(f"{method} {task_id}\n")


server = MCPServer("tasks", extensions=[Tasks()])


@server.tool()
def build(kind: str) -> str:
    """Builds a house."""
    raise AssertionError(f"not as a task: {kind}")


if __name__ == "__main__":
    uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]), access_log=False)
