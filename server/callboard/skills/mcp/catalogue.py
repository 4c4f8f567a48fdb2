"""A server's list of tools as Callboard's own; what no model could call is left out."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from callboard.errors import AgentError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.schemas import arguments_schema, readable_text
from callboard.tools import Tool, ToolContext, ToolResult

MAX_TOOLS = 200
"""Of one server. A model is lost long before."""

MAX_NAME_CHARS = 64

Call = Callable[[str, Mapping[str, Any], ToolContext], Awaitable[ToolResult]]
"""Runs a tool by the server's own name of it."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One entry of a server's list, in its own words."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False


def catalogue(declaration: ServerDeclaration, listed: Iterable[ListedTool], call: Call) -> tuple[Tool, ...]:
    """The tools, named `<server>_<tool>`, at most `MAX_TOOLS`; each that is left out is logged."""
    tools: dict[str, Tool] = {}
    for one in listed:
        name = _name(declaration.prefix, one.name, tools)
        reason = ""
        if len(tools) >= MAX_TOOLS:
            reason = f"the server has more than {MAX_TOOLS} tools"
        elif name in tools:
            reason = "the server lists it twice"
        else:
            try:
                tools[name] = _tool(name, declaration, one, call)
            except (AgentError, ValueError) as error:
                reason = str(error)
        if reason:
            _log.warning("mcp_tool_left_out", server=declaration.name, tool=one.name[:MAX_NAME_CHARS], reason=reason)
        if len(tools) >= MAX_TOOLS and reason:
            break
    return tuple(tools.values())


def _tool(name: str, declaration: ServerDeclaration, listed: ListedTool, call: Call) -> Tool:
    async def serve(callboard_context: ToolContext, **arguments: Any) -> ToolResult:
        return await call(listed.name, arguments, callboard_context)

    asks = declaration.confirm == "always" or (declaration.confirm == "unless_read_only" and not listed.read_only)
    return Tool(
        name,
        readable_text(declaration.hide(listed.description)) or f"{listed.name}, a tool of {declaration.name}.",
        arguments_schema(listed.schema),
        serve,
        timeout_seconds=declaration.timeout_seconds,
        read_only=listed.read_only,
        requires_confirmation=asks,
    )


def _name(prefix: str, given: str, taken: Mapping[str, Tool]) -> str:
    """A name that models take; one that had to be cut or is taken ends in a hash, so that it stays the same."""
    name = f"{prefix}_{re.sub(r'[^A-Za-z0-9_-]+', '_', given)}"
    if len(name) <= MAX_NAME_CHARS and name not in taken:
        return name
    mark = hashlib.sha256(given.encode(errors="replace")).hexdigest()[:6]
    return f"{name[: MAX_NAME_CHARS - len(mark) - 1]}_{mark}"
