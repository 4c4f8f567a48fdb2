"""Gauges, whose values are read at each scrape."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge

from callboard._metrics.labels import Names


@dataclass(frozen=True, slots=True)
class Gauges:
    """The values of all gauges at one moment; `open_runs` are by agent."""

    open_runs: Mapping[str, int]
    listeners: int
    waiting_runs: int
    log_bytes: int
    waiting_writes: int = 0
    unwritten_turns: int = 0


class GaugeMetrics:
    """The gauges; with several workers, their sums."""

    def __init__(self, agents: Names, registry: CollectorRegistry) -> None:
        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry, multiprocess_mode="livesum")

        self._agents = agents
        # An agent without open runs has a series with 0.
        self._labels = set(agents.registered)
        self._open_runs = gauge("callboard_runs_open", "Runs under way.", "agent")
        self._waiting_runs = gauge("callboard_runs_waiting", "Runs that wait for a place.")
        self._listeners = gauge("callboard_listeners", "Listeners of runs, including runs of other servers.")
        self._log_bytes = gauge("callboard_log_bytes", "The memory that logs and files of runs take.")
        self._waiting_writes = gauge("callboard_store_waiting_writes", "Writes that wait for the store.")
        self._unwritten_turns = gauge("callboard_store_unwritten_turns", "Turns that the store could not write yet.")

    def set(self, values: Gauges) -> None:
        """Set every gauge."""
        counts: Counter[str] = Counter()
        for agent, count in values.open_runs.items():
            counts[self._agents.label(agent)] += count
        self._labels |= counts.keys()
        for label in sorted(self._labels):
            self._open_runs.labels(label).set(counts[label])
        self._waiting_runs.set(values.waiting_runs)
        self._listeners.set(values.listeners)
        self._log_bytes.set(values.log_bytes)
        self._waiting_writes.set(values.waiting_writes)
        self._unwritten_turns.set(values.unwritten_turns)
