"""Open WebUI's tools as tools of LangChain."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from callboard.agents import RunContext
from callboard.calls import Tool
from callboard.errors import AgentError
from callboard.frameworks.langgraph.hooks import current_hooks
from callboard.frameworks.turn import run_openwebui_tool


def to_langchain_tools(
    context: RunContext, own_tools: Sequence[BaseTool | Callable[..., Any] | Mapping[str, Any]]
) -> list[BaseTool]:
    """Return Open WebUI's tools of a run, for a function that makes the graph of this run.

    `own_tools` are all other tools of the graph: without them, a tool of Open WebUI that has the name of one would take
    its place.
    """
    own_names = {_find_name(tool) for tool in own_tools}
    return [_to_langchain_tool(tool) for tool in context.openwebui_tools if tool.name not in own_names]


def _find_name(tool: BaseTool | Callable[..., Any] | Mapping[str, Any]) -> str:
    match tool:
        case BaseTool():
            return tool.name
        case Mapping():
            # A tool that the provider of the model runs, or a schema in OpenAI's form.
            return str((tool.get("function") or tool).get("name", ""))
        case _:
            return getattr(tool, "__name__", "")


def _to_langchain_tool(tool: Tool) -> BaseTool:
    async def run(**arguments: Any) -> str:
        if (hooks := current_hooks.get()) is None:
            raise AgentError(f"{tool.name} was called outside of the run that it was made for.")
        return await run_openwebui_tool(hooks.turn, tool, **arguments)

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=dict(tool.parameters), coroutine=run
    )
