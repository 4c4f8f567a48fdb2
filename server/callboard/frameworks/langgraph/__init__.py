"""LangGraph's graphs, including LangChain's agents: `register(from_langgraph(agent))`.

`to_langchain_tools(context, own_tools)` are Open WebUI's own tools, for a function that makes a graph for each run.

Needs `pip install callboard[langgraph]`.
"""

from callboard.frameworks.langgraph.agent import from_langgraph
from callboard.frameworks.langgraph.openwebui_tools import to_langchain_tools

__all__ = ["from_langgraph", "to_langchain_tools"]
