"""The metrics of `GET /metrics`, for Prometheus. Only this package knows their names.

Runs are counted by an observer, and the store reports how long each access took.
"""

from callboard._metrics.metrics import MAX_UNREGISTERED, ROUTES, Metrics

__all__ = ["MAX_UNREGISTERED", "ROUTES", "Metrics"]
