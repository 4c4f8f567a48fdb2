"""Describes a LangGraph graph before it runs."""

from collections.abc import Iterator
from typing import Any

from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from pydantic import BaseModel

from callboard.agents import DescribedTool, Description
from callboard.frameworks.langgraph.closures import captured_by_nodes
from callboard.frameworks.langgraph.stream import Graph


def describe(graph: Graph, model: object) -> Description:
    """Return the facts about the graph that its objects hold; `model` is the first model in it."""
    prompts = [value.text for value in captured_by_nodes(graph) if isinstance(value, SystemMessage)]
    nodes = [name for name in graph.nodes if not name.startswith("__")]
    notes = [f"Its nodes: {', '.join(nodes)}. They may send a model other messages than these."]
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    if model is not None and not name:
        name = type(model).__name__
    tools = {tool.name: _describe_tool(tool) for tool in _walk_tools(graph)}
    return Description("\n\n".join(dict.fromkeys(prompts)) or None, name, list(tools.values()), notes)


def _walk_tools(graph: Graph) -> Iterator[BaseTool]:
    for node in graph.nodes.values():
        if isinstance(node.bound, ToolNode):
            yield from node.bound.tools_by_name.values()
    for _, inner in graph.get_subgraphs():
        if isinstance(inner, Pregel):
            yield from _walk_tools(inner)


def _describe_tool(tool: BaseTool) -> DescribedTool:
    schema: Any = tool.tool_call_schema
    parameters = schema.model_json_schema() if isinstance(schema, type) and issubclass(schema, BaseModel) else schema
    return DescribedTool(tool.name, tool.description, parameters if isinstance(parameters, dict) else None)
