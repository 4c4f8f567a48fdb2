"""The parts of a server that use only its public interface: the inspector, metrics, traces, OpenAI's routes.

Each is a package of its own, which only this module and the command line import. Without the package, the server runs
without the part.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.routing import Route

from callboard.agents import Registry
from callboard.http import Access, Authenticate
from callboard.http.auth import UNNAMED_KEY
from callboard.observers import NoTracer, RunTracer
from callboard.runs import Runs
from callboard.settings import Settings
from callboard.storage import Store

if TYPE_CHECKING:
    from callboard._inspect import Inspector
    from callboard._metrics import Metrics


def _has_part(name: str) -> bool:
    return find_spec(f"callboard.{name}") is not None


def list_part_routes() -> list[Route]:
    """Return the routes of the parts, except the inspector, which is an application of its own."""
    routes: list[Route] = []
    if _has_part("_openai"):
        from callboard import _openai

        routes += _openai.ROUTES
    if _has_part("_metrics"):
        from callboard import _metrics

        routes += _metrics.ROUTES
    return routes


def make_inspector(settings: Settings, authenticate: Authenticate | None, access: Access) -> "Inspector | None":
    """Return the inspector; None if `CALLBOARD_INSPECT` is false."""
    if not (settings.inspect and _has_part("_inspect")):
        return None
    from callboard._inspect import Inspector

    # If users are signed, a client's key stands for no user, and must not show the chats of all users.
    is_limited = settings.inspect_keys or settings.open_webui_jwt_secret
    keys = frozenset({UNNAMED_KEY, *settings.inspect_keys}) if is_limited else None
    return Inspector(authenticate, access, keys)


def make_metrics(settings: Settings, agents: Registry, store: Store, find_runs: Callable[[], Runs]) -> "Metrics | None":
    """Return the metrics of these agents and this store; None if `CALLBOARD_METRICS` is false.

    `find_runs` returns the runs, which are made later than the metrics that observe them.
    """
    if not (settings.metrics and _has_part("_metrics")):
        return None
    from callboard._metrics import Metrics

    metrics = Metrics(agents, find_runs, store)
    store.measure(metrics.note_access)
    return metrics


def make_tracer(settings: Settings) -> RunTracer:
    """Return the tracer of runs, which makes spans if OpenTelemetry is configured."""
    if not _has_part("_tracing"):
        return NoTracer()
    from callboard._tracing import Tracing

    return Tracing(has_contents=settings.trace_content)
