"""pydantic-ai's agents: `register(from_pydantic_ai(agent))`. Needs `pip install callboard[pydantic-ai]`."""

from callboard.frameworks.pydantic_ai.agent import from_pydantic_ai

__all__ = ["from_pydantic_ai"]
