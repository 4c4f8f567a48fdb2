"""Traces of runs, with OpenTelemetry: makes the spans, as an observer of all runs, and exports them.

The package knows no agents, tools or HTTP.
"""

from callboard._tracing.spans import Tracing

__all__ = ["Tracing"]
