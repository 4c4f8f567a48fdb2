"""The application over an open server state."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from callboard.http import chat_routes, openai, run_routes
from callboard.http.auth import BearerAuth
from callboard.http.errors import EXCEPTION_HANDLERS
from callboard.http.gate import Gate, JsonBodies
from callboard.http.state import ServerState

ROUTES = [*run_routes.ROUTES, *chat_routes.ROUTES, *openai.ROUTES]
EXPOSED_HEADERS = (
    "Content-Disposition",
    "WWW-Authenticate",
    "X-Callboard-Run",
    "X-Callboard-Tools-Ignored",
    "X-Should-Retry",
)


def create_app(state: ServerState, api_key: str | None = None) -> ASGIApp:
    """The routes, behind `api_key` where there is one, and behind the gate in any case."""
    routes = Starlette(
        routes=ROUTES,
        middleware=[Middleware(JsonBodies), Middleware(BearerAuth, api_key=api_key, links=state.links)],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    routes.state.server = state
    # Around the whole, so that an answer to a failure of ours has their headers too.
    return Gate(_open_to(state.access.origins, routes), state.access)


def _open_to(origins: frozenset[str], app: ASGIApp) -> ASGIApp:
    """The application with its preflights answered and its answers readable for pages of these origins."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(origins),
        allow_methods=("GET", "POST", "DELETE"),
        # Each client has some of its own, and which page may call was decided by its origin.
        allow_headers=("*",),
        allow_private_network=True,
        expose_headers=EXPOSED_HEADERS,
    )
