"""Agents, which turn a conversation into protocol events, and the tool loop that runs `Agent`s.

This package does not import storage or HTTP. The tool loop imports every format of calls, so this module does not
import it: `Agent.run` does, and the file of an agent loads fast.
"""

from callboard.agents.access import AgentAccess
from callboard.agents.agent import Agent, AgentLike, ignored_options
from callboard.agents.context import OnOwnerLoss, RunContext, TurnContext
from callboard.agents.declarations import check_on_owner_loss, check_openwebui_tools
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
