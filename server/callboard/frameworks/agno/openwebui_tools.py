"""Open WebUI's tools as functions of Agno."""

from copy import copy
from functools import partial

from agno.tools.function import Function

from callboard.frameworks.agno.model import AgnoAgent
from callboard.frameworks.openwebui_tools import run_openwebui_tool
from callboard.frameworks.turn import AdapterTurn


def add_openwebui_tools(agent: AgnoAgent, turn: AdapterTurn) -> AgnoAgent:
    """Return a copy of the agent that also has Open WebUI's tools of this run; the agent itself if there are none.

    An agent whose tools are made by a function keeps only those.
    """
    tools = agent.tools or []
    if not turn.context.openwebui_tools or not isinstance(tools, list):
        return agent
    added = [
        Function(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            entrypoint=partial(run_openwebui_tool, turn, tool),
            skip_entrypoint_processing=True,
        )
        for tool in turn.context.openwebui_tools
    ]
    extended = copy(agent)
    # Last, because Agno skips a tool whose name an earlier one has.
    extended.tools = [*tools, *added]
    return extended
