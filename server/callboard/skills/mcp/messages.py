"""Repairs messages of MCP servers, because the SDK rejects a whole message for one invalid part.

Many servers are broken in part, and their users want the rest: the tools that can be called, the text of a result.
`WatchedStream` is between the transport and the SDK.
"""

import json
from typing import Any, Self

import anyio.lowlevel
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ContentBlock,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import TypeAdapter, ValidationError

from callboard.calls.pictures import is_picture
from callboard.skills.mcp.catalogue import MAX_NAME_CHARS, MAX_TOOLS
from callboard.skills.mcp.schema import clean_schema
from callboard.skills.mcp.signals import ENDED, Signals
from callboard.text import storable_json

MAX_SHOWN_CHARS = 1_000
"""The longest text that is shown from a block of an unknown type."""

_OTHER_RESULTS = frozenset(
    {
        *("protocolVersion", "capabilities", "supportedVersions", "inputRequests"),
        *("resources", "resourceTemplates", "contents", "taskId"),
    }
)
"""The keys in results of requests other than calls. A result without any of them may be a call's."""

_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)
_NEEDLESS = frozenset({"_meta", "annotations", "icons", "size"})
"""Fields of blocks that are never shown. An invalid value must not cost the block."""

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
        if isinstance(message, ValidationError) and (repaired := _repair_message(message)) is not None:
            _log.debug("mcp_message_repaired", server=self._server)
            message = repaired
        match message:
            case SessionMessage(message=JSONRPCResponse(result=result) as answer) if "tools" in result:
                answer.result = {**result, **await self._repair_list(result)}
            case SessionMessage(message=JSONRPCResponse(result=result) as answer) if not result.keys() & _OTHER_RESULTS:
                answer.result = repair_result(result)
            case SessionMessage(message=JSONRPCNotification(method="notifications/tools/list_changed")):
                # Here, because the SDK may pass it on after the result of the call that has changed the tools.
                self._signals.change_tools()
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
                tools.append(_repair_tool(entry))
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


def _repair_message(error: ValidationError) -> SessionMessage | None:
    """Return the unreadable message repaired, or an error that ends the call which it answers.

    Return None if it is not an answer, because servers print other text to their standard output.
    """
    given = error.errors()[0]["input"]
    message = _read_json(given) if isinstance(given, str) else given
    if not isinstance(message, dict) or message.keys().isdisjoint(("result", "error")):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(_complete(message), by_name=False))
    except ValidationError:
        answered = message.get("id")
    if not isinstance(answered, int | str):
        return None
    reason = ErrorData(code=PARSE_ERROR, message=f"the message is not valid JSON-RPC: {error.errors()[0]['msg']}")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=answered, error=reason))


def _repair_tool(given: object) -> dict[str, Any]:
    """Return an entry of a server's list of tools with the fields that are used. Raises `ValueError` with the defect.

    The output schema is dropped, because a result that does not fit it is better than none.
    """
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or not given["name"].strip():
        raise ValueError("it has no name")
    tool = {key: given[key] for key in ("title", "description") if isinstance(given.get(key), str)}
    hints = given.get("annotations")
    if isinstance(hints, dict):
        title = {"title": hints["title"]} if isinstance(hints.get("title"), str) else {}
        tool["annotations"] = {"readOnlyHint": hints.get("readOnlyHint") is True, **title}
    return {**tool, "name": given["name"], "inputSchema": clean_schema(given.get("inputSchema"))}


def repair_result(given: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call with all its content. Content of an unknown type becomes text."""
    result = {key: given[key] for key in ("_meta", "resultType") if isinstance(given.get(key), dict | str)}
    unknown = given.keys() - {"_meta", "resultType", "content", "structuredContent", "isError"}
    content = given.get("content")
    if content is None and given.get("structuredContent") is None and unknown:
        content = {key: given[key] for key in given if key in unknown}
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    structured = given.get("structuredContent")
    if structured is not None:
        result["structuredContent"] = structured if isinstance(structured, dict) else {"result": structured}
    is_error = given.get("isError") in (True, "true")
    return {**result, "content": [_repair_block(block) for block in blocks], "isError": is_error}


def _repair_block(given: object) -> dict[str, Any]:
    if isinstance(given, dict):
        kept = {"type": "text", **{key: value for key, value in given.items() if key not in _NEEDLESS}}
        try:
            _BLOCK.validate_python(kept, by_name=False)
        except ValidationError:
            pass
        else:
            return kept
        return _make_text(json.dumps(_shorten(given), ensure_ascii=False))
    return _make_text(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))


def _make_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _shorten(value: object) -> object:
    """Return a JSON value with long texts cut, because a block of an unknown type may contain a film in base64.

    Pictures are kept: the session takes them out.
    """
    match value:
        case str() if len(value) > MAX_SHOWN_CHARS and not is_picture(value):
            return f"{value[:MAX_SHOWN_CHARS]}… [{len(value) - MAX_SHOWN_CHARS} more characters]"
        case dict():
            return {key: _shorten(item) for key, item in value.items()}
        case list():
            return [_shorten(item) for item in value]
        case _:
            return value


def _complete(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the fields that JSON-RPC 2.0 requires, if their values are certain."""
    complete = {**message, "jsonrpc": "2.0"}
    if "result" in message and not isinstance(message["result"], dict):
        # Only the result of a call can be a text or a list.
        complete["result"] = {"content": message["result"]}
    error = message.get("error")
    if error is not None and "result" not in message:
        fields = error if isinstance(error, dict) else {"message": error}
        code = fields.get("code")
        complete["error"] = {
            "code": code if isinstance(code, int) else -32603,
            "message": str(fields.get("message") or json.dumps(error, ensure_ascii=False)),
        }
    return complete


def _read_json(text: str) -> object:
    try:
        # Not strict, because some servers do not escape line breaks and tabs.
        return json.loads(storable_json(text.encode("utf-8", "replace")), strict=False)
    except (ValueError, RecursionError):
        return None
