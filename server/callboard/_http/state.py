"""The objects that the routes use, from the start of the application to its end."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from callboard._agents import Registry
from callboard._http.body import BodyBudget
from callboard._http.lifetime import Shutdown
from callboard._http.user_verifier import UserVerifier
from callboard._metrics import Metrics
from callboard._runs import Links, Runs
from callboard.calls import Services
from callboard.storage import Store


@dataclass(frozen=True, slots=True)
class ServerState:
    """The parts of an open application.

    `services` are for tools and the routes of skills. `started_at` is in seconds since the epoch. `metrics` is None if
    `CALLBOARD_METRICS` is false.
    """

    registry: Registry
    services: Services
    store: Store
    runs: Runs
    links: Links
    started_at: int
    bodies: BodyBudget
    shutdown: Shutdown
    user_verifier: UserVerifier
    metrics: Metrics | None = None


def server_state(request: HTTPConnection) -> ServerState:
    """Return the state of the application that serves this request."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state
