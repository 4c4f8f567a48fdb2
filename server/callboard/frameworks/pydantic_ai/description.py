"""Describes a pydantic-ai agent before it runs."""

from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from callboard.agents import DescribedTool, Description


def describe(agent: AbstractAgent[Any, Any]) -> Description:
    """Return the facts about the agent that its objects hold."""
    notes: list[str] = []
    tools: list[DescribedTool] = []

    def visit(toolset: AbstractToolset[Any]) -> None:
        if isinstance(toolset, FunctionToolset):
            tools.extend(map(_describe_tool, toolset.tools.values()))
        elif toolset.id != "<output>":
            notes.append(f"{toolset.label}: its tools are known only during a run.")

    for toolset in agent.toolsets:
        toolset.apply(visit)
    model = getattr(agent, "model", None)
    name = model.model_name if isinstance(model, Model) else model
    return Description(_read_instructions(agent, notes), str(name) if name else None, tools, notes)


def _describe_tool(tool: Any) -> DescribedTool:
    known = tool.tool_def
    return DescribedTool(known.name, known.description or "", known.parameters_json_schema, tool.requires_approval)


def _read_instructions(agent: AbstractAgent[Any, Any], notes: list[str]) -> str | None:
    """Return the texts that the author wrote. Functions that write further instructions are noted."""
    # pydantic-ai has no public name for them. Wrapped agents do not have the private ones.
    found = [getattr(agent, name, None) for name in ("_system_prompts", "_instructions")]
    if None in found:
        notes.append("Its instructions are known only during a run.")
    # An instruction is in an object with its origin, a system prompt is not.
    written = [getattr(entry, "instruction", entry) for part in found for entry in part or ()]
    texts = [instruction for instruction in written if isinstance(instruction, str)]
    functions = len(written) - len(texts) + len(getattr(agent, "_system_prompt_functions", ()))
    if functions:
        notes.append(f"{functions} {'function writes' if functions == 1 else 'functions write'} more for each run.")
    return "\n\n".join(texts) or None
