"""Traces of runs, with OpenTelemetry: makes the spans, as an observer of each run, and exports them.

The package knows no agents, tools or HTTP.
"""

from callboard._tracing.spans import RunSpans, Tracing

__all__ = ["RunSpans", "Tracing"]
