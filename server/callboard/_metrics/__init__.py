"""The metrics of `GET /metrics`, for Prometheus. Only this package knows their names.

Runs are counted by an observer, and the store reports how long each access took. The package knows no HTTP.
"""

from callboard._metrics.gauges import Gauges
from callboard._metrics.labels import MAX_UNREGISTERED
from callboard._metrics.metrics import Metrics

__all__ = ["MAX_UNREGISTERED", "Gauges", "Metrics"]
