"""Agents, which turn a conversation into protocol events, and the tool loop that runs the built-in kind.

This package knows nothing of storage or HTTP. To declare an agent imports only what this module imports; `tool_loop`,
which imports every format of calls, is imported when an agent runs.
"""

from callboard._agents.access import AgentAccess
from callboard._agents.agent import Agent, AgentLike, left_out
from callboard._agents.context import OnOwnerLoss, RunContext, TurnContext, check_on_owner_loss
from callboard._agents.loading import LoadedAgents, load_all_agents, register
from callboard._agents.registry import Registry
from callboard.calls import AnswerTo, Approval, Limits

__all__ = [
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
    "left_out",
    "load_all_agents",
    "register",
]
