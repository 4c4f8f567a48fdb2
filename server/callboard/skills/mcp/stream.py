"""The messages of a server on their way to the SDK."""

from typing import Any, Self

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from callboard.skills.mcp.signals import ENDED, Signals

_log = structlog.get_logger(__name__)


class WatchedStream:
    """Passes messages on, and says when there will be no more: the SDK tells that to nobody but callers.

    A list of tools loses those that are none: the SDK would refuse the whole list for one of them.
    """

    def __init__(self, inner: Any, server: str, signals: Signals) -> None:
        self._inner = inner
        self._server = server
        self._signals = signals

    @property
    def last_context(self) -> Any:
        """What the SDK looks for on streams that have it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        message: SessionMessage | Exception = await self._inner.receive()
        return message

    async def aclose(self) -> None:
        """Ends the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            message: SessionMessage | Exception = await self._inner.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._signals.end(ENDED)
            raise
        match message:
            case SessionMessage(message=JSONRPCResponse(result={"tools": list() as tools} as result)):
                result["tools"] = [usable for tool in tools if (usable := self._usable(tool)) is not None]
            case _:
                pass
        return message

    def _usable(self, tool: object) -> dict[str, Any] | None:
        """The tool without its output schema: a result that does not fit one is better than none."""
        if not isinstance(tool, dict):
            return None
        usable = {key: value for key, value in tool.items() if key != "outputSchema"}
        try:
            validate_server_result("tools/list", "2025-11-25", {"tools": [usable]})
        except ValidationError as error:
            reason = ", ".join(".".join(map(str, detail["loc"][2:])) for detail in error.errors()[:3])
            name = str(tool.get("name"))[:64]
            _log.warning("mcp_tool_left_out", server=self._server, tool=name, reason=f"not as MCP has it: {reason}")
            return None
        return usable

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> bool | None:
        handled: bool | None = await self._inner.__aexit__(*failure)
        return handled
