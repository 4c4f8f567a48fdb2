"""Runs agents behind AG-UI endpoints as agents of Callboard, see `from_agui`. It needs no extra."""

from callboard.frameworks.agui.agent import from_agui

__all__ = ["from_agui"]
