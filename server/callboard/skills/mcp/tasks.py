"""Calls that a server turns into tasks: they are followed until they end, also by a server that takes over the run.

https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md. The older tasks of
2025-11-25 are not supported.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import anyio
from mcp import MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, ElicitRequest, ElicitResult, Request, Result
from pydantic import TypeAdapter, ValidationError

from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import elicit
from callboard.skills.mcp.messages import repair_result
from callboard.skills.mcp.schema import clean_text
from callboard.skills.mcp.signals import Signals, sent_call

GET_TASK = "tasks/get"

UNEXPLAINED = "Server returned an error response"
"""The SDK's message for an unsuccessful HTTP status without a JSON-RPC body."""

POLL_SECONDS = 1.0
"""The pause between two requests for the state of a task if the server suggests none."""

SHORTEST_POLL_SECONDS = 0.1
CANCEL_SECONDS = 0.9
"""The time for a server to answer a cancellation. It is within the time that a stopped tool has to end."""

_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class NewTask(Result):
    """The answer to a call that became a task. The fields of its state are read from `tasks/get`."""

    result_type: Literal["task"]
    task_id: str


class _TaskRequest(Request[dict[str, Any], str]):
    name_param = "taskId"


class Tasks(ClientExtension):
    """Declares to a server that its calls may become tasks, and follows them."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, declaration: ServerDeclaration, signals: Signals) -> None:
        self._declaration = declaration
        self._signals = signals

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the kind of result that this extension reads."""
        return [ResultClaim(result_type="task", model=NewTask, resolve=self._resolve)]

    async def _resolve(self, task: NewTask, claim: ClaimContext) -> CallToolResult:
        return await follow_task(claim.session, task.task_id, self._declaration, self._signals, is_new=True)


async def follow_task(
    session: ClientSession, task_id: str, declaration: ServerDeclaration, signals: Signals, *, is_new: bool
) -> CallToolResult:
    """Return the result of a task of the current call, whose changes are reported as statuses of the call.

    If the call is stopped, the task is cancelled, unless another server continues the run and follows it there.
    Raises `MCPError` if the task has failed, and `ToolError` if it was cancelled or asks for something unknown.
    """
    sent = sent_call.get()
    assert sent is not None, "tasks are followed within their calls"
    try:
        if is_new:
            await sent.context.keep_task(task_id)
        return await _poll(session, task_id, declaration, signals)
    except (asyncio.CancelledError, _UnknownRequest):
        if not sent.context.is_left():
            with anyio.move_on_after(CANCEL_SECONDS):
                await _send(session, "tasks/cancel", task_id)
        raise


class _UnknownRequest(ToolError):
    """A task waits for an answer to a request that is not supported."""


async def _poll(
    session: ClientSession, task_id: str, declaration: ServerDeclaration, signals: Signals
) -> CallToolResult:
    sent = sent_call.get()
    assert sent is not None
    answered: set[str] = set()
    shown = ""
    while True:
        try:
            task = await _send(session, GET_TASK, task_id)
        except MCPError as error:
            # A status of a gateway or of a limit says nothing about the task.
            if not error.message.startswith(UNEXPLAINED) or sent.http_error.startswith(("HTTP 401", "HTTP 403")):
                raise
            task = {}
        message = clean_text(declaration.hide(str(task.get("statusMessage") or "")))
        match task.get("status"):
            case "completed":
                return CallToolResult.model_validate(repair_result(task.get("result") or {}), by_name=False)
            case "failed":
                error = task.get("error") or {}
                raise MCPError(int(error.get("code", 0)), str(error.get("message") or message))
            case "cancelled":
                reason = f": {message}" if message else ""
                raise ToolError(f"The MCP server '{declaration.name}' cancelled the task of this call{reason}.")
            case "input_required":
                asked = task.get("inputRequests") or {}
                answers = {key: await _ask(asked[key], declaration, signals) for key in asked if key not in answered}
                if answers:
                    await _send(session, "tasks/update", task_id, inputResponses=answers)
                    answered.update(answers)
            case _:
                pass
        if message not in ("", shown):
            await sent.report(message)
            shown = message
        pause = task.get("pollIntervalMs")
        await anyio.sleep(max(SHORTEST_POLL_SECONDS, pause / 1000) if isinstance(pause, int) else POLL_SECONDS)


async def _ask(request: Any, declaration: ServerDeclaration, signals: Signals) -> dict[str, Any]:
    try:
        params = ElicitRequest.model_validate(request, by_name=False).params
    except ValidationError:
        raise _UnknownRequest(
            f"The MCP server '{declaration.name}' asked in the task of this call for something that Callboard does not "
            "support. The task was cancelled."
        ) from None
    answer = await elicit(params, declaration, signals)
    declined = answer if isinstance(answer, ElicitResult) else ElicitResult(action="decline")
    return declined.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _send(session: ClientSession, method: str, task_id: str, **params: Any) -> dict[str, Any]:
    return await session.send_request(_TaskRequest(method=method, params={"taskId": task_id, **params}), _OBJECT)
