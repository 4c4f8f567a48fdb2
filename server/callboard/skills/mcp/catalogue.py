"""Converts a server's list of tools to Callboard's tools."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from callboard.calls import Tool, ToolContext, ToolResult
from callboard.calls.arguments import checked_schema_arguments
from callboard.errors import AgentError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.schema import clean_text

if TYPE_CHECKING:
    from mcp_types import Tool as McpTool

MAX_TOOLS = 200
"""The limit for one server. Models are confused by far fewer tools."""

MAX_NAME_CHARS = 64
MAX_TITLE_CHARS = 80

Call = Callable[[str, Mapping[str, Any], ToolContext], Awaitable[ToolResult]]
"""Runs a tool, by the server's own name of it."""

Find = Callable[[str], Tool | None]
"""Finds a tool in the server's latest list by its name for the model; None if it is not there."""


def build_catalogue(
    declaration: ServerDeclaration,
    listed: "Iterable[McpTool]",
    call: Call,
    find: Find,
    leave_out: Callable[[str, str], None],
) -> tuple[Tool, ...]:
    """Return at most `MAX_TOOLS` of the tools that the declaration offers, named `<server>_<tool>`.

    `leave_out` is called with the name and the reason of each offered tool that cannot be used.
    """
    tools: dict[str, Tool] = {}
    given: set[str] = set()
    for entry in listed:
        if not declaration.offers(entry.name):
            continue
        if entry.name in given:
            leave_out(entry.name, "the server lists another tool of this name")
        elif len(tools) >= MAX_TOOLS:
            leave_out(entry.name, f"the server has more than {MAX_TOOLS} tools")
            break
        else:
            given.add(entry.name)
            name = _make_name(declaration.prefix, entry.name, tools)
            try:
                tools[name] = _make_tool(name, declaration, entry, call, find)
            except AgentError as error:
                leave_out(entry.name, str(error))
    return tuple(tools.values())


def _make_tool(name: str, declaration: ServerDeclaration, listed: "McpTool", call: Call, find: Find) -> Tool:
    hints = listed.annotations
    # A hint of an untrusted server must not let a tool run without approval, or again after a failure.
    # https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool
    read_only = declaration.trusted and bool(hints and hints.read_only_hint)
    title = listed.title or (hints.title if hints else None) or ""
    description = listed.description or title

    async def serve(callboard_context: ToolContext, **arguments: Any) -> ToolResult:
        return await call(listed.name, arguments, callboard_context)

    asks = declaration.confirm == "always" or (declaration.confirm == "unless_read_only" and not read_only)
    return Tool(
        name,
        clean_text(declaration.hide(description)) or f"{listed.name}, a tool of {declaration.name}.",
        listed.input_schema,
        serve,
        timeout_seconds=declaration.timeout_seconds,
        read_arguments=checked_schema_arguments(listed.input_schema),
        context_parameter="callboard_context",
        read_only=read_only,
        requires_confirmation=asks,
        title=clean_text(declaration.hide(" ".join(title.split())), MAX_TITLE_CHARS),
        # With the server's own name of the tool, because two of its names may become the same one.
        origin=f"{declaration.identity} {listed.name}",
        find_current=find,
    )


def _make_name(prefix: str, given: str, taken: Mapping[str, Tool]) -> str:
    """Return a valid name for the tool.

    If the name must be cut or is taken, it ends in a hash, so that it stays the same.
    """
    name = f"{prefix}_{re.sub(r'[^A-Za-z0-9_-]+', '_', given)}"
    if len(name) <= MAX_NAME_CHARS and name not in taken:
        return name
    mark = hashlib.sha256(given.encode(errors="replace")).hexdigest()[:6]
    return f"{name[: MAX_NAME_CHARS - len(mark) - 1]}_{mark}"
