"""The metrics of one application.

What runs do is counted by an observer (`Metrics.tell`), what the store takes by `Metrics.note_access`; what there is at
a moment (`Now`) is looked at when somebody asks.

Each application counts for itself: nothing is the process's, and two in one process do not mix.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.metrics_core import Metric

from callboard._agents import Registry
from callboard._metrics.counted import CallMetrics, ModelMetrics, RunMetrics, StoreMetrics
from callboard._metrics.labels import Names
from callboard._metrics.now import Now, NowCollector
from callboard._version import __version__
from callboard.observers import ModelAnswered, Observation, ObservedRun, RunLeft, RunTakenOver
from callboard.storage import StoreAccess
from callboard_protocol import Done, Error, RunStart, ToolCallComplete, ToolCallError


class Metrics:
    """The metrics of one application, which has these agents and is, at a moment, as `now` says.

    `gather` gives what a scrape is told: these metrics alone, or those of all workers.
    """

    def __init__(self, agents: Registry, now: Callable[[], Now]) -> None:
        self.gather: Callable[[], Awaitable[list[Metric]]] = self._gather_own
        self._registry = CollectorRegistry(auto_describe=False)
        agent_names = Names(agent.agent_id for agent in agents)
        tool_names = Names(tool.name for skill in agents.skills for tool in skill.current_tools())

        ProcessCollector(registry=self._registry)
        info = Gauge("callboard_info", "The server that answers.", ["version"], registry=self._registry)
        info.labels(__version__).set(1)
        self._registry.register(NowCollector(now, agent_names))
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

    def collect(self) -> list[Metric]:
        """Return this application's own metrics."""
        return [_without_times(metric) for metric in self._registry.collect()]

    async def _gather_own(self) -> list[Metric]:
        return self.collect()


def _without_times(metric: Metric) -> Metric:
    """Return the metric without when each of its series began: half as many lines, and Prometheus does without."""
    kept = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    kept.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return kept
