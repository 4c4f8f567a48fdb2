"""What there is at the moment of a scrape."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from callboard._metrics.labels import Names


@dataclass(frozen=True, slots=True)
class Now:
    """What there is at a moment: `open_runs` by agent, and of the store what waits to be written in it."""

    open_runs: Mapping[str, int]
    listeners: int
    waiting_runs: int
    log_bytes: int
    waiting_writes: int = 0
    unwritten_turns: int = 0


@dataclass(frozen=True, slots=True)
class NowCollector(Collector):
    """What there is at the moment in which it is asked for."""

    now: Callable[[], Now]
    agents: Names

    def collect(self) -> Iterator[Metric]:
        now = self.now()
        runs = GaugeMetricFamily("callboard_runs_open", "Runs under way.", labels=["agent"])
        # An agent without a run has a series too, with 0.
        counts = Counter(dict.fromkeys(self.agents.registered, 0))
        for agent, count in now.open_runs.items():
            counts[self.agents.label(agent)] += count
        for label, count in sorted(counts.items()):
            runs.add_metric([label], count)
        yield runs
        yield GaugeMetricFamily("callboard_runs_waiting", "Runs that wait for a place.", now.waiting_runs)
        yield GaugeMetricFamily("callboard_listeners", "Listeners of runs, of other servers' too.", now.listeners)
        yield GaugeMetricFamily("callboard_log_bytes", "The memory that logs and files of runs take.", now.log_bytes)
        yield GaugeMetricFamily("callboard_store_waiting_writes", "Writes that wait for the store.", now.waiting_writes)
        yield GaugeMetricFamily(
            "callboard_store_unwritten_turns", "Turns that the store could not take yet.", now.unwritten_turns
        )
