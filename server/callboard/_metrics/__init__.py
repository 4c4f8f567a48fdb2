"""Metrics: what `GET /metrics` tells Prometheus. The one place that knows what is counted, and by which names.

Above: HTTP and the command line, which ask for it. Below: observers, by whom runs are counted, and the store, which
says how long it is waited for. Knows no HTTP.
"""

from callboard._metrics.labels import MOST_LEARNT
from callboard._metrics.metrics import Metrics
from callboard._metrics.now import Now

__all__ = ["MOST_LEARNT", "Metrics", "Now"]
