"""Calls that a server turns into tasks: they are followed until they end, also by a server that takes over the run.

https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md. The tasks of 2025-11-25
are others, and not supported.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import anyio
from mcp import MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, ElicitRequest, ElicitResult, Request, Result

from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import elicit
from callboard.skills.mcp.messages import repair_result
from callboard.skills.mcp.schema import clean_text
from callboard.skills.mcp.signals import SentCall, Signals, sent_call

UNEXPLAINED = "Server returned an error response"
"""The SDK's message for an unsuccessful HTTP status without a JSON-RPC body."""

SHORTEST_POLL_MS = 100
CANCEL_SECONDS = 0.9
"""The time for a server to answer a cancellation. It is within the time that a stopped tool has to end."""


class _NewTask(Result):
    result_type: Literal["task"]
    task_id: str


class _Task(Result):
    """The answer to a request about a task; all fields are empty if it only confirms the request."""

    status: str = ""
    status_message: str | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class _TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"


class Tasks(ClientExtension):
    """Tells a server that its calls may become tasks, and follows them."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, declaration: ServerDeclaration, signals: Signals) -> None:
        self._declaration = declaration
        self._signals = signals

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the kind of result that this extension reads."""

        def resolve(task: _NewTask, claim: ClaimContext) -> Awaitable[CallToolResult]:
            return self.follow(claim.session, task.task_id, is_new=True)

        return [ResultClaim(result_type="task", model=_NewTask, resolve=resolve)]

    async def follow(self, session: ClientSession, task_id: str, *, is_new: bool = False) -> CallToolResult:
        """Return the result of the current call's task, and report its messages as statuses of the call.

        If the call is stopped, the task is cancelled, unless another server continues the run and follows it there.
        An invalid state or question raises `ValueError`, and cancels the task too. Raises `ToolError` if the task has
        failed or was cancelled, and `MCPError` if its state cannot be read.
        """
        sent = sent_call.get()
        assert sent is not None, "a task is followed within its call"
        sent.task_id = task_id
        try:
            if is_new:
                await sent.context.keep_task(task_id)
            return await self._poll(session, task_id, sent)
        except (asyncio.CancelledError, ValueError):
            if not sent.context.is_left():
                with suppress(MCPError, RuntimeError), anyio.move_on_after(CANCEL_SECONDS, shield=True):
                    await _send(session, "tasks/cancel", task_id)
            raise

    async def _poll(self, session: ClientSession, task_id: str, sent: SentCall) -> CallToolResult:
        hide = self._declaration.hide
        shown = ""
        answered: set[str] = set()
        while True:
            try:
                task = await _send(session, "tasks/get", task_id)
            except MCPError as failure:
                # A status of a gateway or of a limit says nothing about the task.
                if not failure.message.startswith(UNEXPLAINED) or sent.http_error.startswith(("HTTP 401", "HTTP 403")):
                    raise
                sent.http_error = ""
                task = _Task()
            message = clean_text(hide(task.status_message or ""))
            match task.status:
                case "completed":
                    return CallToolResult.model_validate(repair_result(task.result or {}), by_name=False)
                case "failed" | "cancelled":
                    # Not with the code of its error, which is no error of the request.
                    reason = clean_text(hide(str((task.error or {}).get("message", "")))) or message
                    name = self._declaration.name
                    ended = f"The MCP server '{name}' ended the task of this call as {task.status}: {reason}"
                    raise ToolError(ended)
            if message and message != shown:
                shown = message
                await sent.report(message)
            asked = task.input_requests or {}
            if new := {key: await self._answer(asked[key]) for key in asked if key not in answered}:
                answered.update(new)
                await _send(session, "tasks/update", task_id, {"inputResponses": new})
            await anyio.sleep(max(SHORTEST_POLL_MS, task.poll_interval_ms or 1_000) / 1_000)

    async def _answer(self, request: Any) -> dict[str, Any]:
        # Only such requests are supported, and servers know it from the client's capabilities.
        params = ElicitRequest.model_validate(request, by_name=False).params
        answer = await elicit(params, self._declaration, self._signals)
        result = answer if isinstance(answer, ElicitResult) else ElicitResult(action="decline")
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _send(session: ClientSession, method: str, task_id: str, params: Mapping[str, Any] | None = None) -> _Task:
    return await session.send_request(_TaskRequest(method=method, params={"taskId": task_id, **(params or {})}), _Task)
