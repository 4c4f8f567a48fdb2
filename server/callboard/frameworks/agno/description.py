"""Describes an Agno agent or team before it runs."""

from collections.abc import Iterator, Sequence
from typing import Any

from agno.models.message import Message
from agno.team import Team
from agno.tools import Function, Toolkit

from callboard.agents import DescribedTool, Description
from callboard.frameworks.agno.model import AgnoAgent


def describe(agent: AgnoAgent) -> Description:
    """Return the facts about an agent or team that its objects hold."""
    instructions, notes = _read_instructions(agent)
    tools: list[DescribedTool] = []
    if callable(agent.tools):
        notes.append("A function returns its tools for each run.")
    else:
        for tool in agent.tools or ():
            tools += _describe_tool(tool, notes)
    if isinstance(agent, Team):
        notes += _describe_members(agent)
    # A model that is only named becomes an object with the first run.
    model = getattr(agent.model, "id", agent.model)
    return Description(instructions, str(model) if model else None, tools, notes)


def _read_instructions(agent: AgnoAgent) -> tuple[str | None, list[str]]:
    """Return the instructions that the author wrote, and notes on how Agno turns them into a system message."""
    if agent.system_message is not None:
        written = agent.system_message
        if isinstance(written, Message):
            written = written.get_content_string()
        if callable(written):
            return None, ["A function writes its system message for each run."]
        return written, []
    parts = [agent.description or ""]
    notes = ["Agno builds the system message from these and from other settings of the agent."]
    if callable(agent.instructions):
        notes = ["A function writes its instructions for each run."]
    elif isinstance(agent.instructions, str):
        parts.append(agent.instructions)
    else:
        parts += agent.instructions or ()
    text = "\n\n".join(part for part in parts if part)
    return text or None, notes if text or callable(agent.instructions) else []


def _describe_tool(tool: Any, notes: list[str]) -> Iterator[DescribedTool]:
    match tool:
        case Toolkit() if functions := tool.get_async_functions():
            for function in functions.values():
                yield _describe_function(function)
        case Toolkit():
            notes.append(f"{tool.name}: its tools are known only after a run has connected it.")
        case Function():
            yield _describe_function(tool)
        case dict():
            written = tool.get("function") or tool
            name = str(written.get("name") or tool.get("type") or "tool")
            yield DescribedTool(name, str(written.get("description", "")), written.get("parameters"))
        case _ if callable(tool):
            yield _describe_function(Function.from_callable(tool))


def _describe_function(function: Function) -> DescribedTool:
    # A copy, because `process_entrypoint` writes the schema into the object, which Agno itself does when a run begins.
    read = function.model_copy(deep=False)
    read.process_entrypoint()
    return DescribedTool(
        read.name, read.description or "", read.parameters, asks_first=bool(read.requires_confirmation)
    )


def _describe_members(team: Team) -> Sequence[str]:
    if callable(team.members):
        return ["A function returns its members for each run."]
    names = [member.name or member.id or type(member).__name__ for member in team.members]
    return [f"Its members, each with its own prompt and tools: {', '.join(map(str, names))}."]
