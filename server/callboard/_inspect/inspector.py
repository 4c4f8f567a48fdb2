"""The inspector as an ASGI application in front of the server's routes."""

from collections.abc import Collection
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard._inspect import agent_pages, list_pages, now_pages, run_pages
from callboard._inspect.access_control import AccessControl
from callboard._inspect.rendering import render
from callboard._inspect.signing_in import SigningIn
from callboard._inspect.visit import SCOPE_KEY, Visit
from callboard._inspect.watch import RunWatch
from callboard.errors import CallboardError
from callboard.http import Authenticate, ServerState
from callboard.http.auth import read_route_path
from callboard.http.errors import find_status
from callboard.http.gate import Access

PREFIX = "/inspect"

_log = structlog.get_logger(__name__)


class Inspector:
    """The pages of one application. `watch.observe` must be one of the observers of its runs.

    `keys` are the names of the API keys that may sign in; None allows all keys.
    """

    def __init__(self, authenticate: Authenticate | None, access: Access, keys: Collection[str] | None) -> None:
        self.watch = RunWatch()
        self._signing_in = SigningIn(authenticate, keys)
        self._pages = Starlette(
            routes=[
                Mount("/assets", StaticFiles(packages=[(__package__, "assets")])),
                *now_pages.ROUTES,
                *run_pages.ROUTES,
                *list_pages.ROUTES,
                *agent_pages.ROUTES,
            ],
            middleware=[Middleware(AccessControl, signing_in=self._signing_in, access=access)],
            exception_handlers=dict.fromkeys((CallboardError, HTTPException, Exception), _answer_error),
        )
        self._pages.state.watch = self.watch

    async def open(self, state: ServerState) -> None:
        """Prepare the pages for this server. Raises `StorageError`."""
        await self._signing_in.open(state.store)
        state.runs.on_user_forgotten = self.watch.forget_user
        self._pages.state.server = state

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return an application that serves the pages under `PREFIX`, and passes all other requests to `app`."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            path = read_route_path(scope) if scope["type"] in ("http", "websocket") else ""
            if path != PREFIX and not path.startswith(f"{PREFIX}/"):
                await app(scope, receive, send)
                return
            prefix = scope.get("root_path", "") + PREFIX
            inner = {**scope, "root_path": prefix, "path": f"{prefix}/" if path == PREFIX else scope["path"]}
            await self._pages(inner, receive, send)

        return serve


async def _answer_error(request: Request, error: Exception) -> Response:
    match error:
        case CallboardError():
            status, reason = find_status(error), str(error)
        case HTTPException():
            status, reason = HTTPStatus(error.status_code), error.detail
        case _:
            _log.error("page_failed", path=request.scope["path"], exc_info=error)
            status, reason = HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log has the reason"
    visit = request.scope.get(SCOPE_KEY) or Visit(request.scope["root_path"])
    return render("refused.html", visit, status, title=status.phrase, reason=reason)
