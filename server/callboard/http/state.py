"""The objects that the routes use, from the start of the application to its end."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from callboard.agents.registry import Registry
from callboard.calls import Services
from callboard.http.auth import UserVerifier
from callboard.http.body import BodyBudget
from callboard.http.shutdown import Shutdown
from callboard.runs import Runs
from callboard.runs.links import Links
from callboard.storage import Store


@dataclass(frozen=True, slots=True)
class ServerState:
    """The parts of an open application.

    `services` are for tools and the routes of skills. `started_at` is in seconds since the epoch.
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


def get_server_state(request: HTTPConnection) -> ServerState:
    """Return the state of the application that serves this request."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state
