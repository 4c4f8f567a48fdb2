"""The tools of a pydantic-ai run: the agent's own without pydantic-ai's limit of retries, and Open WebUI's."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic_ai.tools import RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset
from typing_extensions import override

from callboard.frameworks.turn import AdapterTurn, run_openwebui_tool

RETRIES = 1_000_000
"""The number of failures that pydantic-ai allows a call: practically unlimited. The turn's own limits end the turn
first, and with an answer."""


@dataclass
class UnlimitedRetriesToolset(WrapperToolset[Any]):
    """An agent's tools, with pydantic-ai's limit of retries lifted so that wrong calls do not end the run.

    `retries` is filled with the limits that the tools' author set, by tool name. `added` are tools that are offered
    too, unless the agent has a tool of the same name. `before_call` gets the id and the final arguments of each call.
    """

    retries: dict[str, int] = field(default_factory=dict)
    added: FunctionToolset[Any] = field(default_factory=FunctionToolset)
    before_call: Callable[[str, dict[str, Any]], Awaitable[None]] = field(kw_only=True)

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools. A tool without its own limit may fail any number of times."""
        tools = await super().get_tools(replace(ctx, max_retries=RETRIES))
        self.retries |= {name: tool.max_retries for name, tool in tools.items() if tool.max_retries < RETRIES}
        offered = await self.added.get_tools(ctx) | tools
        return {name: replace(tool, max_retries=RETRIES) for name, tool in offered.items()}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a tool of the agent, or one of the added tools."""
        await self.before_call(ctx.tool_call_id or "", tool_args)
        if tool.toolset is self.added:
            return await self.added.call_tool(name, tool_args, ctx, tool)
        return await super().call_tool(name, tool_args, ctx, tool)


def make_openwebui_toolset(turn: AdapterTurn) -> FunctionToolset[Any]:
    """Return Open WebUI's tools of the run."""
    return FunctionToolset(
        [
            Tool.from_schema(
                partial(run_openwebui_tool, turn, tool), tool.name, tool.description, dict(tool.parameters)
            )
            for tool in turn.context.openwebui_tools
        ]
    )
