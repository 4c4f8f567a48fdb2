"""Tracing: the spans of runs, by OpenTelemetry, and where they are sent.

Above: runs, which have their spans begun here. Below: observers, by whom the spans are made, and the context in which
they are passed on. Knows no agents, no tools and no HTTP.
"""

from callboard._tracing.spans import RunSpans, Tracing

__all__ = ["RunSpans", "Tracing"]
