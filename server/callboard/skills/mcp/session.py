"""One open connection to an MCP server: its tools, parallel calls of them, and their results.

Texts and pictures in a result are shown. Other content is described in words.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
import structlog
from mcp import Client, MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool
from pydantic_core import from_json, to_json

from callboard.calls import ToolContext, ToolResult
from callboard.calls.pictures import Pictures, describe_size, is_picture
from callboard.errors import ToolError
from callboard.skills.mcp.catalogue import MAX_TOOLS
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import ask_for_urls
from callboard.skills.mcp.signals import ForgottenSession, NotSignedIn, Signals
from callboard.skills.mcp.tasks import LOST, UNEXPLAINED, Tasks

READ_RESOURCE = "resources/read"
"""The protocol's method, and the server's own name of the tool that calls it."""

RESOURCE_LIST_SECONDS = 2.0
"""The time for a server to list its resources. Its tools wait for this list, so it is less than the time for theirs."""

CALL_SECONDS = 86_400.0
"""Longer than any call may take: the executor's limit comes first, and cancels the call at the server too."""

MAX_PAGES = 100

MAX_RESULT_CHARS = 100_000
"""The longest part of a result that a model is sent."""

MAX_ERROR_CHARS = 4_000

_READER = McpTool(
    name=READ_RESOURCE,
    title="Read a resource",
    description="Reads a resource of this server by its URI, for example the URI of a link in a result.",
    input_schema={"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]},
    annotations=ToolAnnotations(read_only_hint=True),
)

_log = structlog.get_logger(__name__)

_SERVER_CODES = range(-32099, -31999)
"""JSON-RPC's codes for errors of servers."""

_FORGOTTEN = re.compile(
    r"""
    (?: bad \s request: \s )? (?:
        (?:the\s)? server \s (?:is\s)? not \s initiali[sz]ed
        | (?:the\s|mcp\s)? session \b .{0,80} \b (?: not \s (?: found | exist | initiali[sz]ed ) | expired | unknown )
        | (?: unknown | expired | invalid | no \s valid | no \s active ) \b .{0,20} \b session
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""The beginning of the message if the session is not known, from servers that send it with HTTP 200 or 500:
https://github.com/zoedsoupe/anubis-mcp/issues/89,
https://github.com/joshrotenberg/tower-mcp/issues/65"""


@dataclass(frozen=True, slots=True)
class Session:
    """Calls over a connection. Many tasks use it at once."""

    declaration: ServerDeclaration
    client: Client
    signals: Signals

    async def list_tools(self) -> list[McpTool]:
        """Return all pages of the server's list, up to one tool more than is used. Raises the SDK's exceptions.

        The first tool reads resources, if the server has any.
        """
        listed = [_READER] if await self._has_resources() else []
        names: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await self.client.list_tools(cursor=cursor)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    break  # a server with only prompts and resources
                raise
            if page.tools and all(tool.name in names for tool in page.tools):
                _log.warning("mcp_list_never_ends", server=self.declaration.name, tools=len(listed))
                break
            listed += page.tools
            names.update(tool.name for tool in page.tools)
            cursor = page.next_cursor
            if not cursor or len(listed) > MAX_TOOLS:
                break
        return listed

    async def _has_resources(self) -> bool:
        # Many servers declare the capability and have none.
        if self.client.server_capabilities.resources and not self.signals.has_resources:
            with suppress(MCPError, ValueError), anyio.move_on_after(RESOURCE_LIST_SECONDS):
                self.signals.has_resources = bool(
                    (await self.client.list_resources()).resources
                    or (await self.client.list_resource_templates()).resource_templates
                )
        return self.signals.has_resources

    async def _read_resource(self, uri: str) -> CallToolResult:
        contents = (await self.client.read_resource(uri)).contents
        return CallToolResult(content=[EmbeddedResource(resource=one) for one in contents])

    async def call(self, tool_name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run a tool, and report its progress as statuses of the call. Raises `ToolError`, `ForgottenSession`.

        Cancelling this method cancels the tool at the server.
        """
        name = self.declaration.name
        hide = self.declaration.hide

        async def report(progress: float, total: float | None, message: str | None) -> None:
            percent = 100 * progress / total if total and total > 0 else None
            text = message or (f"{progress:g}" if percent is None else "")
            await sent.report(hide(text), percent)

        with self.signals.calling(context) as sent, sent.scope:
            try:
                if context.task_id:
                    result = await Tasks(self.declaration, self.signals).follow(context.task_id)
                elif tool_name == READ_RESOURCE and self.signals.has_resources:
                    result = await self._read_resource(str(arguments["uri"]))
                else:
                    result = await self.client.call_tool(
                        tool_name, dict(arguments), read_timeout_seconds=CALL_SECONDS, progress_callback=report
                    )
            except MCPError as error:
                if sent.sign_in_reason:
                    raise NotSignedIn(name, sent.sign_in_reason) from error
                if demand := await ask_for_urls(error, self.declaration, context):
                    raise demand from error
                # A tool with an argument for a session means its own.
                is_own = any("session" in argument.lower() for argument in arguments)
                if sent.has_session and not is_own and error.code in _SERVER_CODES and _FORGOTTEN.match(error.message):
                    self.signals.forget(sent)
                raise (
                    ForgottenSession() if sent.is_refused else self._to_tool_error(error, sent.http_error)
                ) from error
            except (RuntimeError, ValueError) as error:
                # The SDK's checks reject the result.
                reason = truncate(hide(str(error)), MAX_ERROR_CHARS)
                raise ToolError(f"The MCP server '{name}' returned an invalid result: {reason}") from error
            has_link = any(isinstance(block, ResourceLink) for block in result.content)
            if has_link and self.client.server_capabilities.resources and not self.signals.has_resources:
                self.signals.has_resources = True
                self.signals.change_tools()
            return read_result(name, result, hide)
        reason = truncate(hide(sent.stray_error), MAX_ERROR_CHARS)
        raise ToolError(f"The MCP server '{name}' reported an error that is probably about this call: {reason}")

    def _to_tool_error(self, error: MCPError, http_error: str) -> ToolError:
        """Return an error of a call for the model, and end the connection if it is lost."""
        name = self.declaration.name
        if http_error and error.message.startswith(UNEXPLAINED):
            if http_error.startswith("HTTP 500"):
                # Servers that raise an exception for an unknown session answer the list in the same way.
                self.signals.change_tools()
            return ToolError(f"The MCP server '{name}' answered the call with {self.declaration.hide(http_error)}")
        message = truncate(self.declaration.hide(error.message), MAX_ERROR_CHARS)
        if error.message.startswith(LOST):
            self.signals.end("the connection was lost during a call")
            return ToolError(
                f"The connection to the MCP server '{name}' was lost during this call ({message}), which may have been "
                "carried out or not. It is being restarted; try again in a few seconds."
            )
        if error.code == PARSE_ERROR:
            reason = " ".join(message.split("[type=")[0].split())
            return ToolError(
                f"The answer of the MCP server '{name}' cannot be read ({reason}). The call may have taken effect."
            )
        return ToolError(f"The MCP server '{name}' refused the call: {message}")


def means_lost_session(error: MCPError) -> bool:
    """Return whether the server cannot be reached any more, or no longer knows the session, by its answer to a list."""
    return error.message.startswith((*LOST, "Session terminated")) or _FORGOTTEN.match(error.message) is not None


def read_result(server: str, result: CallToolResult, hide: Callable[[str], str]) -> ToolResult:
    """Convert a result, with secrets removed by `hide`. Raises `ToolError` if the server reports a failure."""
    # The event of a failed call has no files.
    pictures = Pictures(can_show=not result.is_error)
    parts = [pictures.take_from(hide(_read_block(block, pictures))) for block in result.content]
    text = "\n\n".join(filter(None, parts))
    structured = result.structured_content
    written = to_json(structured, inf_nan_mode="null").decode() if structured is not None else ""
    public = hide(written)
    shown = pictures.take_from(public)
    limit = MAX_ERROR_CHARS if result.is_error else MAX_RESULT_CHARS
    if len(text) + len(shown) <= limit and _says_more(structured, len(shown), result.content, parts):
        text = "\n\n".join(filter(None, (text, shown)))
    text = truncate(text or shown, limit)
    if result.is_error:
        raise ToolError(text or f"The MCP server '{server}' reported a failure without a reason.")
    # Only text can be cut or have secrets removed. Structured data is kept unchanged or dropped.
    data = structured if public == written and len(written) <= MAX_RESULT_CHARS else None
    return ToolResult(text, files=tuple(pictures.files), data=data)


def _says_more(structured: Any, length: int, content: Sequence[ContentBlock], parts: Sequence[str]) -> bool:
    """Return whether structured content, of `length` characters as JSON, has clearly more than the content's texts.

    Servers should repeat it as text, and many send only a short text or a picture beside it:
    https://github.com/open-webui/open-webui/issues/28926, https://github.com/anomalyco/opencode/issues/38923
    """
    words = sum(
        len(part)
        for block, part in zip(content, parts, strict=True)
        if not isinstance(block, ImageContent | AudioContent)
    )
    if 2 * words >= length:
        return False
    texts = [block.text for block in content if isinstance(block, TextContent)]
    values = [_read_json(text) for text in texts]
    # Servers put a list or a text into an object, and Python's SDK sends each item of a list as a text of its own.
    wrapped = [*structured.values()] if isinstance(structured, dict) and len(structured) == 1 else []
    return not any(same in (structured, *wrapped) for same in (*texts, *values, texts, values))


def _read_json(text: str) -> Any:
    """Return the value of a JSON text, and other text unchanged."""
    try:
        return from_json(text)
    except ValueError:
        return text


def truncate(text: str, limit: int) -> str:
    """Return `text` cut to `limit` characters, with a note about the rest."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} more characters. Ask for less at a time.]"


def _read_block(block: ContentBlock, pictures: Pictures) -> str:
    """Return a block as text, with a mark in place of a picture."""
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return pictures.take(block.data, block.mime_type)
        case AudioContent():
            return f"[audio, {block.mime_type}, {describe_size(block.data)}: it cannot be played here]"
        case ResourceLink():
            return " ".join(filter(None, (block.title or block.name, f"<{block.uri}>", block.description)))
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return f"{resource.uri}:\n{resource.text}"
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            kind = resource.mime_type or "no known type"
            if kind.startswith("image/") or is_picture(resource.blob):
                return pictures.take(resource.blob, kind)
            return f"[file {resource.uri}, {kind}, {describe_size(resource.blob)}: it cannot be shown here]"
    return ""
