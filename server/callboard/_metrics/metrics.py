"""The metrics of one application, and their route.

Runs are counted by an observer (`Metrics.observe`), accesses to the store by `Metrics.note_access`. Gauges are read at
each scrape. The number of a label's values is bounded, although models, clients and tools may invent names.

Each application has its own registry, so several in one process do not mix.
"""

import collections
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._version import __version__
from callboard.agents.registry import Registry
from callboard.errors import CallboardError, ModelError, ToolError
from callboard.http.auth import METRICS_PATH
from callboard.observers import STOPPED as STOPPED_ERRORS
from callboard.observers import ModelAnswered, Observation, ObservedRun, RunLeft, RunTakenOver
from callboard.runs import Runs
from callboard.storage import Store
from callboard.storage.values import StoreAccess
from callboard_protocol import Done, Error, RunStart, ToolCallComplete, ToolCallError

OTHER = "other"
"""The label of all names without a label of their own."""
OK = "ok"
STOPPED = "stopped"

MAX_UNREGISTERED = 100
"""Number of tools, and of models, that get a label without being registered."""


class Names:
    """The names that are labels: registered ones, and up to `MAX_UNREGISTERED` others that exist."""

    def __init__(self, registered: Iterable[str] = ()) -> None:
        self.registered = frozenset(registered)
        self._unregistered: set[str] = set()

    def label(self, name: str, *, is_real: bool = False) -> str:
        """Return the label for a name.

        `is_real`: a tool or model of this name exists, because it has just returned a result. Other names may be
        invented.
        """
        if name in self.registered or name in self._unregistered:
            return name
        if is_real and name and len(self._unregistered) < MAX_UNREGISTERED:
            self._unregistered.add(name)
            return name
        return OTHER


def name_outcome(error: str | None) -> str:
    """Return the outcome of a request to a model; `error` is the class name of the exception that ended it."""
    if error is None:
        return OK
    return STOPPED if error in STOPPED_ERRORS else _MODEL_CODES.get(error, OTHER)


def _codes_of(base: type[CallboardError]) -> dict[str, str]:
    """Return the codes of `base` and its subclasses by class name, without classes outside of `callboard.errors`."""
    found = {base.__name__: base.code} if base.__module__ == CallboardError.__module__ else {}
    for kind in base.__subclasses__():
        found |= _codes_of(kind)
    return found


_MODEL_CODES = _codes_of(ModelError)
CALL_CODES = frozenset({*_codes_of(ToolError).values(), "interrupted"})
ERROR_CODES = frozenset({*_codes_of(CallboardError).values(), "interrupted"})


TOOL_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
RUN_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
FIRST_TOKEN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 60)
MODEL_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 20)

OPERATIONS = ("read", "write")


class RunMetrics:
    """Metrics of runs that end at this server, and of runs that move between servers."""

    def __init__(self, agents: Names, registry: CollectorRegistry) -> None:
        self._agents = agents
        self._began: dict[str, float] = {}
        self._ended = Counter("callboard_runs", "Runs that have ended.", ["agent", "kind", "ending"], registry=registry)
        self._seconds = Histogram(
            "callboard_run_seconds",
            "The time from a run's start here to its end.",
            ["agent", "kind"],
            buckets=RUN_SECONDS,
            registry=registry,
        )
        self._taken_over = Counter(
            "callboard_runs_taken_over",
            "Runs that this server took over from servers that were lost or released them.",
            ["agent"],
            registry=registry,
        )
        self._left = Counter(
            "callboard_runs_left", "Runs that this server released to another server.", ["agent"], registry=registry
        )
        # Create each series with 0: `rate` of a missing series is empty, and raises no alarm.
        for agent in agents.registered:
            self._taken_over.labels(agent)
            self._left.labels(agent)

    def begin(self, run: ObservedRun, _: RunStart) -> None:
        """Note the start of a run."""
        self._began[run.run_id] = time.monotonic()

    def take_over(self, run: ObservedRun, _: RunTakenOver) -> None:
        """Count a run that this server takes over, and note the time."""
        self._began[run.run_id] = time.monotonic()
        self._taken_over.labels(self._agents.label(run.agent_id)).inc()

    def leave(self, run: ObservedRun, _: RunLeft) -> None:
        """Count a run that another server continues."""
        self._began.pop(run.run_id, None)
        self._left.labels(self._agents.label(run.agent_id)).inc()

    def end(self, run: ObservedRun, event: Done | Error) -> None:
        """Count a run that has ended; a cancelled run ends without an error."""
        if isinstance(event, Done):
            ending: str = event.finish_reason
        else:
            ending = event.code if event.code in ERROR_CODES else OTHER
        agent = self._agents.label(run.agent_id)
        kind = "task" if run.task else "chat"
        self._ended.labels(agent, kind, ending).inc()
        if (began := self._began.pop(run.run_id, None)) is not None:
            self._seconds.labels(agent, kind).observe(time.monotonic() - began)


class CallMetrics:
    """Metrics of tool calls."""

    def __init__(self, tools: Names, registry: CollectorRegistry) -> None:
        self._tools = tools
        self._ended = Counter(
            "callboard_tool_calls", "Tool calls that have ended.", ["tool", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "callboard_tool_call_seconds",
            "Duration of a tool call, without the wait for the user's approval.",
            ["tool"],
            buckets=TOOL_SECONDS,
            registry=registry,
        )

    def end(self, _: ObservedRun, call: ToolCallComplete | ToolCallError) -> None:
        """Count a call that has a result, or that failed or was not run."""
        outcome = OK
        if isinstance(call, ToolCallError):
            outcome = call.code if call.code in CALL_CODES else OTHER
        # A result proves that a tool of this name exists.
        tool = self._tools.label(call.tool_name, is_real=isinstance(call, ToolCallComplete))
        self._ended.labels(tool, outcome).inc()
        if call.duration_ms is not None:
            self._seconds.labels(tool).observe(call.duration_ms / 1000)


class ModelMetrics:
    """Metrics of requests to models."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._models = Names()
        self._requests = Counter(
            "callboard_model_requests", "Requests to models.", ["model", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "callboard_model_request_seconds",
            "The time to the end of a model's answer.",
            ["model"],
            buckets=MODEL_SECONDS,
            registry=registry,
        )
        self._first_token_seconds = Histogram(
            "callboard_model_first_token_seconds",
            "The time to the first piece of a model's answer.",
            ["model"],
            buckets=FIRST_TOKEN_SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "callboard_model_tokens",
            "Tokens as endpoints count them; cached ones are of the input, reasoning ones of the output.",
            ["model", "type"],
            registry=registry,
        )

    def end(self, _: ObservedRun, answered: ModelAnswered) -> None:
        """Count a request that has succeeded or failed."""
        model = self._models.label(answered.model, is_real=answered.error is None)
        self._requests.labels(model, name_outcome(answered.error)).inc()
        self._seconds.labels(model).observe(answered.seconds)
        if answered.first_seconds is not None:
            self._first_token_seconds.labels(model).observe(answered.first_seconds)
        if usage := answered.usage:
            self._tokens.labels(model, "input").inc(usage.input_tokens)
            self._tokens.labels(model, "output").inc(usage.output_tokens)
            self._tokens.labels(model, "cached").inc(usage.cached_tokens)
            self._tokens.labels(model, "reasoning").inc(usage.reasoning_tokens)


class StoreMetrics:
    """Metrics of accesses to the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "callboard_store_seconds",
            "Duration of a read or a write.",
            ["operation"],
            buckets=STORE_SECONDS,
            registry=registry,
        )
        failures = Counter(
            "callboard_store_failures", "Accesses to the store that failed.", ["operation"], registry=registry
        )
        # Looked up once, because a run has dozens of accesses. Created with 0 as in `RunMetrics`.
        self._seconds = {operation: seconds.labels(operation) for operation in OPERATIONS}
        self._failures = {operation: failures.labels(operation) for operation in OPERATIONS}

    def note(self, access: StoreAccess) -> None:
        """Count an access."""
        self._seconds[access.operation].observe(access.seconds)
        if access.is_failed:
            self._failures[access.operation].inc()


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
        counts = collections.Counter(self._agents.label(run.identity.agent_id) for run in runs if not run.ended)
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
