"""Adapters that run agents of other frameworks as Callboard agents.

Each framework has its own package and its own extra, for example `callboard.frameworks.agno`. An adapter applies the
limits and approvals of Callboard's own tool loop. It knows nothing of storage or HTTP.

An adapter for a framework that is not here is a subclass of `FrameworkAgent`, whose `run_turn` reports to an
`AdapterTurn`.
"""

from callboard.frameworks.adapter import FrameworkAgent
from callboard.frameworks.failures import model_error, tool_error
from callboard.frameworks.turn import AdapterTurn

__all__ = ["AdapterTurn", "FrameworkAgent", "model_error", "tool_error"]
