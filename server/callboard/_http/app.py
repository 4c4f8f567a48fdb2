"""The routes and what stands in front of them."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Lifespan

from callboard._http import chat_routes, metrics_routes, openai, run_routes, user_routes
from callboard._http.auth import ApiKey, Authenticate, Authentication
from callboard._http.errors import EXCEPTION_HANDLERS
from callboard._http.gate import Access, Gate, JsonBodies, NoNul
from callboard._http.request_ids import HEADER as REQUEST_ID
from callboard._http.request_ids import RequestIds
from callboard._runs import Links

ROUTES = [
    *run_routes.ROUTES,
    *chat_routes.ROUTES,
    *user_routes.ROUTES,
    *openai.ROUTES,
    *metrics_routes.ROUTES,
]
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
    """Return the server's routes, and further `routes` before them, behind `authenticate` where there is one.

    `middleware` stands behind the server's own: what it sees is of somebody who may call. `metrics_key` opens
    `/metrics` too.
    """
    ours = [Middleware(NoNul), Middleware(JsonBodies)]
    if authenticate is not None:
        ours.append(Middleware(Authentication, authenticate=authenticate, links=links, metrics_key=metrics_key))
    return Starlette(
        routes=[*routes, *ROUTES],
        middleware=[*ours, *middleware],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=lifespan,
    )


def put_gate_before(app: ASGIApp, access: Access) -> ASGIApp:
    """Return the application behind the gate; pages of allowed origins may read its answers, each with its id.

    Around the whole, so that an answer to a failure of ours, or of the gate, has the headers for that too.
    """
    if access.origins:
        app = CORSMiddleware(
            app,
            allow_origins=sorted(access.origins),
            allow_methods=("GET", "POST", "DELETE"),
            # Each client has some of its own, and which page may call was decided by its origin.
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=EXPOSED_HEADERS,
        )
    return RequestIds(Gate(app, access))
