"""Which tools of the SDK can be held to the server's rules, and which cannot be served at all."""

from collections.abc import Iterator
from typing import Any, Final

from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    ComputerTool,
    CustomTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    ShellTool,
    Tool,
    ToolSearchTool,
    WebSearchTool,
)
from agents.sandbox import SandboxAgent
from agents.tool import ProgrammaticToolCallingTool

from callboard.errors import AgentError

RUN_HERE: Final = (FunctionTool, ShellTool, LocalShellTool, ApplyPatchTool, CustomTool)
"""Run by the SDK in this process: each call is counted, asked about, timed and stored before its tool runs."""

RUN_AT_THE_MODELS_END: Final = (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ProgrammaticToolCallingTool,
    ToolSearchTool,
    WebSearchTool,
)
"""Run by OpenAI while it answers, as is a `ShellTool` with a container: their calls are shown and counted."""

REFUSED: Final = {
    ComputerTool: (
        "the answer to a call of it is a picture of the screen, so that the model cannot be told that a call was "
        "refused, failed or ran out of time: give the model function tools that do there what it may do"
    ),
    SandboxAgent: (
        "what it can do in its sandbox is made into tools during the run, where Callboard does not see them: make it a "
        "plain Agent, and what it may do there function tools"
    ),
}
"""Classes of the SDK that Callboard does not serve, and why."""


def refuse_what_cannot_be_held(agent: Agent[Any]) -> None:
    """Raise `AgentError` for an agent, or one that it hands over to or has as a tool, that cannot be served."""
    for one in company(agent):
        check(one)


def check(agent: Agent[Any]) -> None:
    """Raise `AgentError`, with the name of what cannot be held, for this agent alone."""
    if why := _why_not(agent):
        raise AgentError(f"The agent '{agent.name}' ({type(agent).__name__}) cannot be served: {why}.")
    for tool in agent.tools:
        if why := _why_not(tool):
            name = getattr(tool, "name", "")
            raise AgentError(
                f"The tool '{name}' ({type(tool).__name__}) of the agent '{agent.name}' cannot be served: {why}."
            )


def runs_at_the_models_end(tool: Tool) -> bool:
    """Whether OpenAI runs the tool, and not this process."""
    return isinstance(tool, RUN_AT_THE_MODELS_END) or (isinstance(tool, ShellTool) and tool.executor is None)


def _why_not(one: Agent[Any] | Tool) -> str:
    for refused, why in REFUSED.items():
        if isinstance(one, refused):
            return why
    if isinstance(one, ToolSearchTool) and one.execution == "client":
        return "the SDK does not run a tool search that is the client's to execute: leave out execution"
    if not isinstance(one, (Agent, *RUN_HERE, *RUN_AT_THE_MODELS_END)):
        return "Callboard does not know this kind of tool, and so cannot hold it to the limits and questions of others"
    return ""


def company(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """The agent and all that can take part in its runs, as far as it is known before they do."""
    seen: list[Agent[Any]] = []
    waiting = [agent]
    while waiting:
        one = waiting.pop()
        if any(one is known for known in seen):
            continue
        seen.append(one)
        yield one
        waiting += filter(None, (*map(_handed_to, one.handoffs), *map(_inside, one.tools)))


def _handed_to(handoff: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | None:
    to = handoff if isinstance(handoff, Agent) else handoff._agent_ref and handoff._agent_ref()
    return to if isinstance(to, Agent) else None


def _inside(tool: Tool) -> Agent[Any] | None:
    inner = getattr(tool, "_agent_instance", None)
    return inner if isinstance(inner, Agent) else None
