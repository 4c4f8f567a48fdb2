"""The metrics of one application, and their route.

Runs are counted by an observer (`Metrics.observe`), accesses to the store by `Metrics.note_access`. Gauges are read at
each scrape.

Each application has its own registry, so several in one process do not mix.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._metrics.counters import CallMetrics, ModelMetrics, RunMetrics, StoreMetrics
from callboard._metrics.labels import Names
from callboard._version import __version__
from callboard.agents.registry import Registry
from callboard.http.auth import METRICS_PATH
from callboard.observers import ModelAnswered, Observation, ObservedRun, RunLeft, RunTakenOver
from callboard.runs import Runs
from callboard.storage import Store
from callboard_protocol import Done, Error, RunStart, ToolCallComplete, ToolCallError


class GaugeMetrics:
    """The gauges. `find_runs` returns the runs, which are made later."""

    def __init__(self, agents: Names, registry: CollectorRegistry, find_runs: Callable[[], Runs], store: Store) -> None:
        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry)

        self._agents = agents
        self._find_runs = find_runs
        self._store = store
        # An agent without open runs has a series with 0.
        self._labels = set(agents.registered)
        self._open_runs = gauge("callboard_runs_open", "Runs under way.", "agent")
        self._waiting_runs = gauge("callboard_runs_waiting", "Runs that wait for a slot.")
        self._listeners = gauge("callboard_listeners", "Listeners of runs, including runs of other servers.")
        self._log_bytes = gauge("callboard_log_bytes", "The memory that logs, texts and files of runs take.")
        self._waiting_writes = gauge("callboard_store_waiting_writes", "Writes that wait for the store.")

    def refresh(self) -> None:
        """Set every gauge to its current value."""
        runs = self._find_runs()
        counts = Counter(self._agents.label(run.identity.agent_id) for run in runs if not run.ended)
        self._labels |= counts.keys()
        for label in sorted(self._labels):
            self._open_runs.labels(label).set(counts[label])
        self._waiting_runs.set(runs.queued)
        self._listeners.set(runs.listeners)
        self._log_bytes.set(runs.log_bytes)
        self._waiting_writes.set(self._store.waiting_writes)


class Metrics(Collector):
    """The metrics of an application with these agents; `find_runs` and `store` are for the gauges."""

    def __init__(self, agents: Registry, find_runs: Callable[[], Runs], store: Store) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        agent_names = Names(agent.agent_id for agent in agents)
        tool_names = Names(tool.name for skill in agents.skills for tool in skill.current_tools())

        ProcessCollector(registry=self._registry)
        info = Gauge("callboard_info", "The server that answers.", ["version"], registry=self._registry)
        info.labels(__version__).set(1)
        self._gauges = GaugeMetrics(agent_names, self._registry, find_runs, store)
        runs = RunMetrics(agent_names, self._registry)
        calls = CallMetrics(tool_names, self._registry)
        models = ModelMetrics(self._registry)
        self.note_access = StoreMetrics(self._registry).note
        """Counts an access to the store."""

        self._counters: dict[type, Callable[[ObservedRun, Any], None]] = {
            RunStart: runs.begin,
            RunTakenOver: runs.take_over,
            RunLeft: runs.leave,
            Done: runs.end,
            Error: runs.end,
            ToolCallComplete: calls.end,
            ToolCallError: calls.end,
            ModelAnswered: models.end,
        }

    def observe(self, run: ObservedRun, observation: Observation) -> None:
        """Count an event of a run; an `Observer`."""
        # Looked up by class, because most events are text and must cost little.
        if count := self._counters.get(type(observation)):
            count(run, observation)

    def collect(self) -> Iterator[Metric]:
        """Return this application's metrics."""
        self._gauges.refresh()
        return map(_without_times, self._registry.collect())


def _without_times(metric: Metric) -> Metric:
    """Return the metric without its `_created` samples, which double the lines and which Prometheus does not need."""
    kept = Metric(metric.name, metric.documentation, metric.type, metric.unit)
    kept.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return kept


async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format, or in OpenMetrics if the client accepts it."""
    metrics = request.app.state.metrics
    if metrics is None:
        raise HTTPException(404, "CALLBOARD_METRICS is false")
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(metrics), headers={"Content-Type": content_type})


ROUTES = [Route(METRICS_PATH, metrics)]
