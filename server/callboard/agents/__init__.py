"""Agents, which turn a conversation into protocol events, and the tool loop that runs the built-in kind.

This package knows nothing of storage or HTTP. To declare an agent imports only what this module imports; `tool_loop`,
which imports every format of calls, is imported when an agent runs.
"""

from callboard.agents.access import AgentAccess
from callboard.agents.agent import Agent, AgentLike, ignored_options
from callboard.agents.context import OnOwnerLoss, RunContext, TurnContext, check_on_owner_loss
from callboard.agents.declarations import check_openwebui_tools
from callboard.agents.description import DescribedAgent, DescribedTool, Description
from callboard.agents.loading import LoadedAgents, load_all_agents, register
from callboard.agents.notices import LIMIT_REACHED, NOTHING_SAID, PICTURE_TOOL, SHOWN_TO_USER
from callboard.agents.registry import Registry
from callboard.calls import AnswerTo, Approval, Limits

__all__ = [
    "LIMIT_REACHED",
    "NOTHING_SAID",
    "PICTURE_TOOL",
    "SHOWN_TO_USER",
    "Agent",
    "AgentAccess",
    "AgentLike",
    "AnswerTo",
    "Approval",
    "DescribedAgent",
    "DescribedTool",
    "Description",
    "Limits",
    "LoadedAgents",
    "OnOwnerLoss",
    "Registry",
    "RunContext",
    "TurnContext",
    "check_on_owner_loss",
    "check_openwebui_tools",
    "ignored_options",
    "load_all_agents",
    "register",
]
