"""LangGraph's graphs, including LangChain's agents: `register(from_langgraph(agent))`.

Needs `pip install callboard[langgraph]`.
"""

from callboard.frameworks.langgraph.agent import from_langgraph

__all__ = ["from_langgraph"]
