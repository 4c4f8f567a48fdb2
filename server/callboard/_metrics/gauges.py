"""Gauges, whose values are read at each scrape."""

from collections import Counter
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from callboard._metrics.labels import Names
from callboard.runs import Runs
from callboard.storage import Store


class GaugeMetrics:
    """The gauges; with several workers, their sums. `find_runs` returns the runs, which are made later."""

    def __init__(self, agents: Names, registry: CollectorRegistry, find_runs: Callable[[], Runs], store: Store) -> None:
        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry, multiprocess_mode="livesum")

        self._agents = agents
        self._find_runs = find_runs
        self._store = store
        # An agent without open runs has a series with 0.
        self._labels = set(agents.registered)
        self._open_runs = gauge("callboard_runs_open", "Runs under way.", "agent")
        self._waiting_runs = gauge("callboard_runs_waiting", "Runs that wait for a slot.")
        self._listeners = gauge("callboard_listeners", "Listeners of runs, including runs of other servers.")
        self._log_bytes = gauge("callboard_log_bytes", "The memory that logs and files of runs take.")
        self._waiting_writes = gauge("callboard_store_waiting_writes", "Writes that wait for the store.")
        self._unwritten_turns = gauge("callboard_store_unwritten_turns", "Turns that the store could not write yet.")

    def refresh(self) -> None:
        """Set every gauge to its current value."""
        runs, queues = self._find_runs(), self._store.queues
        counts = Counter(self._agents.label(run.identity.agent_id) for run in runs if not run.ended)
        self._labels |= counts.keys()
        for label in sorted(self._labels):
            self._open_runs.labels(label).set(counts[label])
        self._waiting_runs.set(runs.queued)
        self._listeners.set(runs.listeners)
        self._log_bytes.set(runs.log_bytes)
        self._waiting_writes.set(queues.waiting_writes)
        self._unwritten_turns.set(queues.unwritten_turns)
