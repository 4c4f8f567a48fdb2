"""Assembles the server's routes and middleware."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Lifespan

from callboard.http import run_routes, sign_in_routes, stored_routes
from callboard.http.auth import ApiKey, Authenticate, Authentication
from callboard.http.errors import EXCEPTION_HANDLERS
from callboard.http.gate import REQUEST_ID, Access, Gate
from callboard.runs.links import Links

ROUTES = [*run_routes.ROUTES, *stored_routes.ROUTES, *sign_in_routes.ROUTES]
EXPOSED_HEADERS = (
    "Content-Disposition",
    "Retry-After",
    "WWW-Authenticate",
    "X-Callboard-Run",
    "X-Callboard-Tools-Ignored",
    REQUEST_ID,
    "X-Should-Retry",
)


def build_routes(
    lifespan: Lifespan[Starlette],
    authenticate: Authenticate | None,
    links: Links,
    *,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
    metrics_key: ApiKey | None = None,
) -> Starlette:
    """Return the application with the server's routes.

    Args:
        lifespan: Opens and closes the application's parts.
        authenticate: Identifies the caller of each request; None lets every request pass.
        links: Checks the signatures of links to results.
        routes: Further routes, which are matched before the server's own.
        middleware: Further middleware; it sees authenticated requests only.
        metrics_key: A key that grants access to `/metrics` alone.
    """
    checks = Middleware(Authentication, authenticate=authenticate, links=links, metrics_key=metrics_key)
    return Starlette(
        routes=[*routes, *ROUTES],
        middleware=[checks, *middleware],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=lifespan,
    )


def wrap_with_gate(app: ASGIApp, access: Access) -> ASGIApp:
    """Return the application behind `Gate`, with CORS headers for allowed origins.

    These wrap all other middleware, so that error responses have the CORS headers and the request's id as well.
    """
    if access.origins:
        app = CORSMiddleware(
            app,
            allow_origins=sorted(access.origins),
            allow_methods=("GET", "POST", "DELETE"),
            # Clients add headers of their own. The origin alone decides which page may call.
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=EXPOSED_HEADERS,
        )
    return Gate(app, access)
