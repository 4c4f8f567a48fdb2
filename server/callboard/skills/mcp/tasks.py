"""Calls that a server turns into tasks: they are followed until they end, also by a server that takes over the run.

https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md. The tasks of 2025-11-25
are others, and not supported.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import anyio
from mcp import MCPError
from mcp.client.extension import ClientExtension, ResultClaim
from mcp_types import CallToolResult, ElicitRequest, ElicitResult, Request, Result

from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import elicit
from callboard.skills.mcp.messages import repair_result
from callboard.skills.mcp.schema import clean_text
from callboard.skills.mcp.signals import NotSignedIn, SentCall, Signals, sent_call

UNEXPLAINED = "Server returned an error response"
"""The SDK's message for an unsuccessful HTTP status without a JSON-RPC body."""

LOST = ("Connection closed", "SSE stream ", UNEXPLAINED)
"""The SDK's messages for a broken connection, and for a gateway's status, which usually means a restart.
Their code, -32000, is also used by many servers for their own errors."""

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
        return [ResultClaim(result_type="task", model=_NewTask, resolve=lambda task, _: self.follow(task.task_id))]

    async def follow(self, task_id: str) -> CallToolResult:
        """Return the result of the current call's task, and report its messages as statuses of the call.

        If the connection ends, the task is followed on the next one. If the call is stopped, or the server sends an
        invalid state or question, which raises `ValueError`, the task is cancelled, unless another server of Callboard
        continues the run. Raises `ToolError` if the task has failed, and `MCPError` if the server refuses a request.
        """
        sent = sent_call.get()
        assert sent is not None, "a task is followed within its call"
        try:
            if task_id != sent.context.task_id:
                await sent.context.keep_task(task_id)
            return await self._poll(task_id, sent)
        except (asyncio.CancelledError, ValueError):
            if not sent.context.is_left():
                with suppress(MCPError, RuntimeError), anyio.move_on_after(CANCEL_SECONDS, shield=True):
                    await self._send(sent, "tasks/cancel", task_id)
            raise

    async def _poll(self, task_id: str, sent: SentCall) -> CallToolResult:
        hide = self._declaration.hide
        shown = ""
        answers: dict[str, dict[str, Any]] = {}
        while True:
            if self._signals.sign_in_reason:
                raise NotSignedIn(self._declaration.name, self._signals.sign_in_reason)
            task = await self._send(sent, "tasks/get", task_id)
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
            if asked := task.input_requests:
                for key in asked:
                    await asyncio.sleep(0)  # because most of many questions are declined without a pause
                    answers[key] = answers.get(key) or await self._answer(asked[key])
                # Sent until the server asks no more, because a connection may break.
                await self._send(sent, "tasks/update", task_id, inputResponses={key: answers[key] for key in asked})
            await anyio.sleep(max(SHORTEST_POLL_MS, task.poll_interval_ms or 1_000) / 1_000)

    async def _send(self, sent: SentCall, method: str, task_id: str, **params: Any) -> _Task:
        """Return the server's answer, an empty one if there is no connection now or a gateway has refused the request.

        Raises `MCPError`.
        """
        session = self._signals.session
        if session is None or self._signals.end_reason:
            return _Task()
        request = _TaskRequest(method=method, params={"taskId": task_id, **params})
        try:
            return await session.send_request(request, _Task)
        except MCPError as error:
            is_refused = bool(sent.sign_in_reason) or sent.http_error.startswith(("HTTP 401", "HTTP 403"))
            if is_refused or not error.message.startswith(LOST):
                raise
            sent.http_error = ""
            return _Task()

    async def _answer(self, request: Any) -> dict[str, Any]:
        # Only such requests are supported, and servers know it from the client's capabilities.
        params = ElicitRequest.model_validate(request, by_name=False).params
        answer = await elicit(params, self._declaration, self._signals)
        result = answer if isinstance(answer, ElicitResult) else ElicitResult(action="decline")
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
