"""The stream of an MCP server's messages, between the transport and the SDK."""

from typing import Any, Self

import anyio.lowlevel
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse
from pydantic import ValidationError

from callboard.skills.mcp.catalogue import MAX_NAME_CHARS, MAX_TOOLS
from callboard.skills.mcp.messages import repair_message, repair_result, repair_tool
from callboard.skills.mcp.signals import ENDED, Signals

_OTHER_RESULTS = frozenset({"protocolVersion", "capabilities", "supportedVersions", "inputRequests"})
"""The keys in results of requests other than calls. A result without any of them may be a call's."""

_log = structlog.get_logger(__name__)


class WatchedStream:
    """Repairs messages, and signals the end of the stream, which the SDK reports only to callers."""

    def __init__(self, inner: Any, server: str, signals: Signals) -> None:
        self._inner = inner
        self._server = server
        self._signals = signals

    def __getattr__(self, name: str) -> Any:
        # Also `last_context`, which the SDK reads from streams that have one.
        return getattr(self._inner, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            message: SessionMessage | Exception = await self._inner.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._signals.end(ENDED)
            raise
        if isinstance(message, ValidationError) and (repaired := repair_message(message)) is not None:
            _log.debug("mcp_message_repaired", server=self._server)
            message = repaired
        match message:
            case SessionMessage(message=JSONRPCResponse(result=result) as answer) if "tools" in result:
                answer.result = {**result, **await self._repair_list(result)}
            case SessionMessage(message=JSONRPCResponse(result=result) as answer) if not result.keys() & _OTHER_RESULTS:
                answer.result = repair_result(result)
            case SessionMessage(message=JSONRPCError(id=None, error=error)):
                self._signals.fail_only_call(error.message)
            case _:
                pass
        return message

    async def _repair_list(self, page: dict[str, Any]) -> dict[str, Any]:
        """Return a page of the list of tools without tools that cannot be called, which are reported."""
        # Some servers send null, or PHP's empty object, for an empty list.
        listed = page["tools"] or []
        if not isinstance(listed, list):
            return {}
        tools: list[dict[str, Any]] = []
        for entry in listed:
            if len(tools) > MAX_TOOLS:
                break  # one more than is used, so that the excess is reported
            # The largest schemas take 20 ms each, so other tasks get a turn.
            await anyio.lowlevel.checkpoint()
            try:
                tools.append(repair_tool(entry))
            except ValueError as error:
                name = str(entry.get("name") if isinstance(entry, dict) else entry)[:MAX_NAME_CHARS]
                self._signals.leave_out(name, str(error))
        cursor = page.get("nextCursor")
        return {"tools": tools, "nextCursor": None if cursor is None else str(cursor)}

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._inner.__aexit__(*failure)
