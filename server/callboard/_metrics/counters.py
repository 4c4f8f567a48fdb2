"""Counters and histograms of runs, tool calls, requests to models and the store: a class each."""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram

from callboard._metrics.labels import CALL_CODES, ERROR_CODES, OK, OTHER, Names, name_outcome
from callboard.observers import ModelAnswered, ObservedRun, RunLeft, RunTakenOver
from callboard.storage.values import StoreAccess
from callboard_protocol import Done, Error, RunStart, ToolCallComplete, ToolCallError

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
