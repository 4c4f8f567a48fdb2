"""The application: agents, a model and a store as one ASGI application.

    board = Callboard([Agent("clerk", skills=[…])], model=OpenAICompatible("http://127.0.0.1:11434/v1", model="qwen3"))
    app = board.asgi()

Any ASGI server can run it, and other applications can mount it under a prefix. It opens its parts when the server
starts, and closes them in reverse order. `callboard serve` does this with the environment's settings.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from secrets import token_hex
from types import EllipsisType
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import Message, Receive, Scope, Send

import callboard.agents.tool_loop  # noqa: F401 - so that no agent imports it during its first run
from callboard import _metrics, _openai
from callboard._application.declarations import (
    check_authenticate,
    check_observers,
    check_settings,
    check_store,
    list_agents,
)
from callboard._application.retention import retaining
from callboard._formats import prepare_reading
from callboard._inspect import Inspector
from callboard._logging import use_plain_tracebacks
from callboard._tracing import Tracing
from callboard.agents import AgentLike
from callboard.agents.declarations import check_model
from callboard.agents.registry import Registry
from callboard.calls import Services
from callboard.calls.sign_ins import SignIns
from callboard.errors import CallboardError
from callboard.http.app import build_routes, wrap_with_gate
from callboard.http.auth import UNNAMED_KEY, Authenticate, UserVerifier, api_key
from callboard.http.body import BodyBudget
from callboard.http.errors import error_response
from callboard.http.gate import Access
from callboard.http.shutdown import Shutdown
from callboard.http.state import ServerState
from callboard.models import ChatModel, ScriptedModel
from callboard.observers import Observer
from callboard.redaction import Redaction
from callboard.runs import Runs
from callboard.runs.links import Links
from callboard.settings import Settings
from callboard.storage import Store
from callboard.threads import REQUESTS

_log = structlog.get_logger(__name__)


class Callboard:
    """The declaration of an application: agents, model, store and access. `asgi` makes the application.

    Args:
        agents: The agents; their ids must differ.
        model: The model of agents without one of their own. Default: a script that explains how to connect a model.
        store: The database for chats, memories and other data, opened and closed by the application. Default: the
            database of the settings. None: the memory of the process.
        authenticate: Returns the caller of a request, for example `api_key("…")`. None: every request is accepted.
        routes: More routes, as in Starlette. `authenticate` guards them too.
        middleware: Middleware, as in Starlette, behind `authenticate`.
        lifespan: A lifespan, as in Starlette, entered after the application has opened.
        observers: Functions that are called with the events of runs, see `callboard.observers`.
        settings: Limits, times and addresses. Default: those of the environment.
        redaction: The secrets that the log leaves out, to which the application adds its own.

    Raises `AgentError` for a wrong agent or model and for two agents with one id, and `SettingsError` for any other
    wrong argument. Each message says how to correct it.
    """

    def __init__(
        self,
        agents: Sequence[AgentLike] = (),
        *,
        model: ChatModel | None = None,
        store: Store | EllipsisType | None = ...,
        authenticate: Authenticate | None = None,
        routes: Sequence[BaseRoute] = (),
        middleware: Sequence[Middleware] = (),
        lifespan: Callable[[Starlette], AbstractAsyncContextManager[Mapping[str, Any] | None]] | None = None,
        observers: Sequence[Observer] = (),
        settings: Settings | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        check_model(model, "The application")
        check_authenticate(authenticate)
        check_store(store)
        check_settings(settings)
        check_observers(observers)
        self.agents = Registry(list_agents(agents))
        self.settings = settings or Settings()
        self.model = model or ScriptedModel()
        self.store = store
        self.authenticate = authenticate
        self.routes = tuple(routes)
        self.middleware = tuple(middleware)
        self.lifespan = lifespan
        self.observers = tuple(observers)
        self.redaction = redaction or Redaction()
        self.redaction.add(
            *self.settings.secrets, *getattr(authenticate, "secrets", ()), *getattr(model, "secrets", ())
        )

    def asgi(self) -> "Application":
        """Return a new application, which opens the store and the agents when it is started; runs are not shared."""
        return Application(self)


class Application:
    """A board as an ASGI application. `await app.stop()` ends its runs if no signal to the process does."""

    def __init__(self, board: Callboard) -> None:
        self.start_error: Exception | None = None
        """The error that the last attempt to open the application failed with."""
        self._board = board
        self._links = _make_links(board.settings)
        # Filled when the skills are open, because only then their routes are known.
        self._skill_routes = Router()
        metrics_key = board.settings.metrics_key
        self._routes = build_routes(
            self.lifespan,
            board.authenticate,
            self._links,
            routes=[*board.routes, Mount("/skills", self._skill_routes), *_openai.ROUTES, *_metrics.ROUTES],
            middleware=board.middleware,
            metrics_key=api_key(metrics_key.get_secret_value()) if metrics_key else None,
        )
        access = Access.from_settings(board.settings)
        self._inspector = _make_inspector(board, access)
        self._pages = self._inspector.wrap(self._routes) if self._inspector else self._routes
        self._app = wrap_with_gate(self._serve_if_open, access)
        self._is_open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the server's lifespan."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_reason(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed" and isinstance(self.start_error, CallboardError):
                # Replaces a traceback by the message, which says what to do.
                message = {**message, "message": str(self.start_error)}
            await send(message)

        await self._routes(scope, receive, send_reason)

    async def _serve_if_open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that has passed the gate."""
        if self._is_open:
            await self._pages(scope, receive, send)
        else:
            # An ASGI server sends lifespan events only to the application that it serves, not to mounted ones.
            problem = "Callboard is not open because its lifespan does not run"
            hint = "pass lifespan=app.lifespan to the application that mounts it, or let the server run lifespans"
            await error_response(CallboardError(f"{problem}: {hint}."))(scope, receive, send)

    @property
    def state(self) -> ServerState:
        """The state that the routes use; it exists only while the application is open."""
        state = self._routes.state.server
        assert isinstance(state, ServerState)
        return state

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop as after a SIGTERM: return when every run has ended or is released to another server.

        Streams end with their runs. With `at_once`, runs do not get the `CALLBOARD_DRAIN_SECONDS` to finish.
        """
        shutdown = self.state.shutdown
        shutdown.requested.set()
        if at_once:
            shutdown.urgent.set()
        await shutdown.runs_released.wait()

    @asynccontextmanager
    async def lifespan(self, _around: object = None) -> AsyncIterator[Mapping[str, Any]]:
        """Keep the application open until the block ends; the lifespan for an application that mounts this one.

        `Starlette(routes=[Mount("/board", app)], lifespan=app.lifespan)`. Without it every request is
        refused.
        """
        self.start_error = None
        use_plain_tracebacks()
        async with AsyncExitStack() as closing:
            try:
                observers = [self._inspector.watch.observe] if self._inspector else []
                opening = _open(self._board, self._routes, self._links, observers)
                state = await closing.enter_async_context(opening)
                if self._inspector:
                    await self._inspector.open(state)
                self._skill_routes.routes[:] = [
                    Mount(f"/{skill.name}", routes=skill.routes) for skill in state.registry.skills if skill.routes
                ]
                lifespan = self._board.lifespan
                user_state = await closing.enter_async_context(lifespan(self._routes)) if lifespan else None
            # The lifespans of skills and users may raise any error; the server reports it and stops.
            except Exception as error:
                self.start_error = error
                raise
            self._is_open = True
            yield user_state or {}


@asynccontextmanager
async def _open(
    board: Callboard, routes: Starlette, links: Links, more_observers: Sequence[Observer]
) -> AsyncIterator[ServerState]:
    """Open the database, the agents and the registry of runs until the block ends; then close all runs.

    `routes` gets the state. `more_observers` are called besides the board's own.
    """
    settings = board.settings
    secret = settings.open_webui_jwt_secret
    async with AsyncExitStack() as closing:
        store = _make_store(board)
        closing.push_async_callback(store.close)
        await store.start()
        closing.push_async_callback(board.model.aclose)
        services = Services(store, board.model, board.redaction, SignIns(store, settings))
        agents = await closing.enter_async_context(board.agents.open(services))
        if interrupted := await store.close_interrupted_calls():
            _log.warning("calls_interrupted_by_last_stop", calls=interrupted)
        await closing.enter_async_context(retaining(store, settings))
        stored_runs = store.stored_runs(token_hex())
        observers = [*board.observers, *more_observers, Tracing().observe]
        routes.state.metrics = None
        if settings.metrics:
            # The runs are made later than the metrics that observe them.
            routes.state.metrics = metrics = _metrics.Metrics(agents, lambda: runs, store)
            store.measure(metrics.note_access)
            observers.append(metrics.observe)
        runs = Runs(agents, services, settings, board.redaction, stored_runs, links, observers)
        await closing.enter_async_context(runs.holding_lease())
        closing.push_async_callback(runs.close)
        preparing = asyncio.create_task(REQUESTS.run(prepare_reading), name="prepare reading")
        closing.push_async_callback(asyncio.wait, {preparing})
        shutdown = closing.enter_context(Shutdown())
        await closing.enter_async_context(_draining(shutdown, runs, settings.drain_seconds))
        routes.state.server = state = ServerState(
            registry=agents,
            services=services,
            store=store,
            runs=runs,
            links=links,
            started_at=int(time.time()),
            bodies=BodyBudget(settings.max_request_mib * 1024 * 1024),
            shutdown=shutdown,
            user_verifier=UserVerifier(secret.get_secret_value() if secret else None),
        )
        yield state


def _make_inspector(board: Callboard, access: Access) -> Inspector | None:
    """Return the inspector; None if `CALLBOARD_INSPECT` is false."""
    settings = board.settings
    if not settings.inspect:
        return None
    # If users are signed, a client's key stands for no user, and must not show the chats of all users.
    is_limited = settings.inspect_keys or settings.open_webui_jwt_secret
    keys = frozenset({UNNAMED_KEY, *settings.inspect_keys}) if is_limited else None
    return Inspector(board.authenticate, access, keys)


def _make_store(board: Callboard) -> Store:
    """Return the board's store, or a new one: in memory if it is None, by default in the settings' database."""
    if isinstance(board.store, EllipsisType):
        return Store(board.settings.resolved_database_url, board.settings.redis_url)
    return board.store or Store("sqlite://")


@asynccontextmanager
async def _draining(shutdown: Shutdown, runs: Runs, drain_seconds: float) -> AsyncIterator[None]:
    """When the process is asked to stop, let runs finish for `drain_seconds`, then release the others.

    Streams end with their runs, and ASGI servers stop when all streams have ended.
    """

    async def drain() -> None:
        try:
            await shutdown.wait()
            await runs.drain(drain_seconds, shutdown.urgent)
            await runs.close()
        finally:
            shutdown.finish()

    draining = asyncio.create_task(drain(), name="drain when stopping")
    try:
        yield
    finally:
        draining.cancel()
        await asyncio.wait({draining})


def _make_links(settings: Settings) -> Links:
    # Without an API key, links are valid only until the process ends.
    secret = settings.api_key.get_secret_value() if settings.api_key else token_hex()
    key = hmac.digest(secret.encode(), b"callboard links", "sha256")
    return Links(settings.public_url or "", settings.result_link_seconds, key)
