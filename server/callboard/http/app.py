"""The Starlette application over an open server state."""

from starlette.applications import Starlette
from starlette.middleware import Middleware

from callboard.http import chat_routes, openai, run_routes
from callboard.http.auth import BearerAuth
from callboard.http.errors import EXCEPTION_HANDLERS
from callboard.http.state import ServerState


def create_app(state: ServerState, api_key: str | None = None) -> Starlette:
    """The routes, behind `api_key` where there is one."""
    app = Starlette(
        routes=[*run_routes.ROUTES, *chat_routes.ROUTES, *openai.ROUTES],
        middleware=[Middleware(BearerAuth, api_key=api_key, links=state.links)],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.state.server = state
    return app
