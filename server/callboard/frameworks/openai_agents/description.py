"""Describes an agent of the OpenAI Agents SDK before it runs."""

from collections.abc import Iterator
from typing import Any

from agents import Agent, FunctionTool, Handoff

from callboard.agents import DescribedTool, Description


def describe(agent: Agent[Any]) -> Description:
    """Return the facts about the agent that its objects hold."""
    instructions = agent.instructions if isinstance(agent.instructions, str) else None
    return Description(
        instructions, _name_model(agent), list(map(_describe_tool, agent.tools)), list(_list_notes(agent))
    )


def _name_model(agent: Agent[Any]) -> str | None:
    model = agent.model
    name = model if model is None or isinstance(model, str) else getattr(model, "model", None)
    return str(name) if name else None


def _describe_tool(tool: Any) -> DescribedTool:
    if not isinstance(tool, FunctionTool):
        # A tool class of the SDK, whose calls have a form that OpenAI defines.
        return DescribedTool(tool.name, f"{type(tool).__name__} of the SDK.")
    # May be a function, which decides by each call's arguments.
    asks_first = bool(tool.needs_approval)
    return DescribedTool(tool.name, tool.description, tool.params_json_schema, asks_first)


def _list_notes(agent: Agent[Any]) -> Iterator[str]:
    if agent.model is None:
        yield "It names no model: the model of its run_config or the SDK's default is used."
    if agent.prompt is not None:
        yield "It has a prompt that is stored at OpenAI."
    if callable(agent.instructions):
        yield "A function writes its instructions for each run."
    if agent.handoffs:
        names = [target.agent_name if isinstance(target, Handoff) else target.name for target in agent.handoffs]
        yield f"It hands off to agents with their own prompts and tools: {', '.join(names)}."
    for server in agent.mcp_servers:
        yield f"MCP server {server.name}: its tools are known only after a run has connected it."
