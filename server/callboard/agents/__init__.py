"""Agents: something with an id that turns a conversation into protocol events.

Above: runs. Below: the tool loop. Knows nothing of storage or HTTP.
"""

from callboard.agents.agent import Agent, AgentLike, RunContext
from callboard.agents.demo import demo_agent
from callboard.agents.registry import LoadedAgents, Registry, load_agents, register
from callboard.loop import AnswerTo, Consent, Limits

__all__ = [
    "Agent",
    "AgentLike",
    "AnswerTo",
    "Consent",
    "Limits",
    "LoadedAgents",
    "Registry",
    "RunContext",
    "demo_agent",
    "load_agents",
    "register",
]
