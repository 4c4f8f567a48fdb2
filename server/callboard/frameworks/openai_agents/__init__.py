"""Agents of the OpenAI Agents SDK: `register(from_openai_agents(agent))`. Needs `callboard[openai-agents]`."""

from callboard.frameworks.openai_agents.agent import from_openai_agents

__all__ = ["from_openai_agents"]
