"""Agno's agents and teams: `register(from_agno(agent))`. Needs `pip install callboard[agno]`."""

from callboard.frameworks.agno.agent import from_agno

__all__ = ["from_agno"]
