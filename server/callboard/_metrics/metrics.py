"""The metrics of one application.

What runs do is counted by an observer (`Metrics.tell`), what the store takes by `Metrics.note_access`; what there is at
a moment (`Now`) is looked at when somebody asks.

Each application counts for itself: nothing is the process's, and two in one process do not mix. Workers
(`callboard serve --workers`) count in files of one folder, by `prometheus_client.multiprocess`, and add these up.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from callboard._agents import Registry
from callboard._metrics.counted import CallMetrics, ModelMetrics, RunMetrics, StoreMetrics
from callboard._metrics.labels import Names
from callboard._metrics.now import Now, NowMetrics
from callboard._version import __version__
from callboard.observers import ModelAnswered, Observation, ObservedRun, RunLeft, RunTakenOver
from callboard.storage import StoreAccess
from callboard_protocol import Done, Error, RunStart, ToolCallComplete, ToolCallError


class Metrics(Collector):
    """The metrics of one application, which has these agents and is, at a moment, as `now` says."""

    def __init__(self, agents: Registry, now: Callable[[], Now]) -> None:
        self.folder: Path | None = None
        """The folder in which workers count, each in files of its own; None for an application in one process."""
        self._registry = CollectorRegistry(auto_describe=False)
        agent_names = Names(agent.agent_id for agent in agents)
        tool_names = Names(tool.name for skill in agents.skills for tool in skill.current_tools())

        ProcessCollector(registry=self._registry)
        info = Gauge(
            "callboard_info",
            "The server that answers.",
            ["version"],
            registry=self._registry,
            multiprocess_mode="livemax",
        )
        info.labels(__version__).set(1)
        self._look = now
        self._now = NowMetrics(agent_names, self._registry)
        runs = RunMetrics(agent_names, self._registry)
        calls = CallMetrics(tool_names, self._registry)
        models = ModelMetrics(self._registry)
        self._store = StoreMetrics(self._registry)

        self._counters: dict[type, Callable[[ObservedRun, Any], None]] = {
            RunStart: runs.begin,
            RunTakenOver: runs.take_over,
            RunLeft: runs.leave,
            Done: runs.finish,
            Error: runs.fail,
            ToolCallComplete: calls.complete,
            ToolCallError: calls.fail,
            ModelAnswered: models.end,
        }

    def tell(self, run: ObservedRun, what: Observation) -> None:
        """Count what a run does: an `Observer`."""
        # By its very class: most of what comes is text, and is to cost nothing.
        if count := self._counters.get(type(what)):
            count(run, what)

    def note_access(self, access: StoreAccess) -> None:
        """Count an access to the store."""
        self._store.note(access)

    def refresh(self) -> None:
        """Set the gauges to what there is now."""
        self._now.set(self._look())

    def collect(self) -> Iterator[Metric]:
        """Return this application's metrics, or those of all workers together."""
        self.refresh()
        source: Collector = self._registry
        if self.folder:
            _forget_dead_workers(self.folder)
            source = MultiProcessCollector(None, str(self.folder))  # type: ignore[no-untyped-call] # it has no types
        return map(_without_times, source.collect())


def _forget_dead_workers(folder: Path) -> None:
    """Remove the gauges of processes that have ended; the counts of these stay."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            # No process of this user has that number. Another worker may remove the files at the same moment.
            with suppress(FileNotFoundError):
                mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call] # it has no types


def _without_times(metric: Metric) -> Metric:
    """Return the metric without when each of its series began: half as many lines, and Prometheus does without."""
    kept = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    kept.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return kept
