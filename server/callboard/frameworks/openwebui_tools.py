"""Chooses and runs Open WebUI's tools for the agents of frameworks."""

from collections.abc import Collection
from typing import Any

from callboard.agents import RunContext
from callboard.calls import Tool
from callboard.calls.tool import as_result
from callboard.frameworks.turn import AdapterTurn
from callboard_protocol import Source


def choose_openwebui_tools(context: RunContext, own_tools: Collection[str]) -> list[Tool]:
    """Return Open WebUI's tools of a run, without those whose names the agent's own tools have.

    The agent keeps its own tools, because a tool of Open WebUI may have any name. Agno and pydantic-ai know some tools
    of an agent only during the run, so their adapters put the agent's own tools first there.
    """
    return [tool for tool in context.openwebui_tools if tool.name not in own_tools]


async def run_openwebui_tool(turn: AdapterTurn, tool: Tool, /, **arguments: Any) -> str:
    """Run the tool for the call that runs in this task, and return its text for the model.

    Sources belong to the answer. Files are shown as the files of a model are, because a framework passes on text only.
    Raises `ToolError`.
    """
    result = as_result(await tool.function(**arguments))
    for source in result.sources:
        turn.add_source(Source.model_validate(source))
    if result.files:
        turn.add_files(result.files)
    return result.text
