"""Agents, which turn a conversation into protocol events, and the tool loop that runs `Agent`s.

This package does not import storage or HTTP. The tool loop imports every format of calls, so this module does not
import it: `Agent.run` does, and the file of an agent loads fast.
"""

from callboard.agents.agent import Agent, AgentLike
from callboard.agents.context import RunContext

__all__ = ["Agent", "AgentLike", "RunContext"]
