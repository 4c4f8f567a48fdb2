"""The ASGI application of a `Callboard`: which parts open and close with the server, in which order."""

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_hex
from types import EllipsisType
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.routing import Mount, Router
from starlette.types import Message, Receive, Scope, Send

from callboard._application.board import Callboard
from callboard._application.retention import retaining
from callboard._formats import prepare_reading
from callboard._http.app import build_routes, put_gate_before
from callboard._http.auth import THE_KEY, api_key
from callboard._http.body import BodyMemory
from callboard._http.gate import Access
from callboard._http.lifetime import OpensItself, Stopping
from callboard._http.state import ServerState
from callboard._http.vouching import Vouching
from callboard._inspect import Inspector
from callboard._logging import use_plain_tracebacks
from callboard._metrics import Metrics, Now
from callboard._runs import Links, Runs
from callboard._settings import Settings
from callboard._threads import REQUESTS
from callboard._tracing import Tracing
from callboard._watchdog import Watchdog
from callboard.calls import Services
from callboard.errors import CallboardError
from callboard.observers import Observer
from callboard.storage import Store

_log = structlog.get_logger(__name__)


class Application:
    """The board as an ASGI application; `await app.stop()` ends its runs, where no signal of the process does."""

    def __init__(self, board: Callboard) -> None:
        self.start_error: Exception | None = None
        """The error that kept it from opening, the last time that it was tried."""
        self._board = board
        self._links = _links(board.settings)
        # Which there are is known once the skills are open.
        self._skill_routes = Router()
        metrics_key = board.settings.metrics_key
        self._routes = build_routes(
            self._live,
            board.authenticate,
            self._links,
            routes=[*board.routes, Mount("/skills", self._skill_routes)],
            middleware=board.middleware,
            metrics_key=api_key(metrics_key.get_secret_value()) if metrics_key else None,
        )
        access = Access.of(board.settings)
        keys = _find_inspecting_keys(board.settings)
        self._inspector = Inspector(board.authenticate, access, keys) if board.settings.inspect else None
        self._opening = OpensItself(self._inspector.wrap(self._routes) if self._inspector else self._routes)
        self._app = put_gate_before(self._opening, access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's start and end."""

        async def send_in_words(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed" and isinstance(self.start_error, CallboardError):
                # In place of its traceback: it says what to do.
                message = {**message, "message": str(self.start_error)}
            await send(message)

        await self._app(scope, receive, send_in_words if scope["type"] == "lifespan" else send)

    @property
    def state(self) -> ServerState:
        """The state that the routes work with, while it is open."""
        state = self._routes.state.server
        assert isinstance(state, ServerState)
        return state

    async def stop(self, *, at_once: bool = False) -> None:
        """Stop as after a SIGTERM: return once every run has ended, or is left to the next server, and its stream ends.

        `at_once`: without the `CALLBOARD_DRAIN_SECONDS` that runs may go on. What opened by itself closes.
        """
        stopping = self.state.stopping
        stopping.asked.set()
        if at_once:
            stopping.hurried.set()
        await stopping.left.wait()

    @asynccontextmanager
    async def lifespan(self, _around: object = None) -> AsyncIterator[Mapping[str, Any]]:
        """Be open until the block ends: `Starlette(routes=[Mount("/board", app)], lifespan=app.lifespan)`.

        For an application around this one that is to start and stop with it; without, the first request opens it.
        """
        self._opening.is_served = True
        async with self._live(self._routes) as state:
            yield state

    @asynccontextmanager
    async def _live(self, routes: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        self.start_error = None
        use_plain_tracebacks()
        async with AsyncExitStack() as closing:
            try:
                watching = [self._inspector.watch.observe] if self._inspector else []
                opening = _open(self._board, self._links, self._opening.leave, watching)
                state = await closing.enter_async_context(opening)
                routes.state.server = state
                if self._inspector:
                    await self._inspector.open(state)
                self._skill_routes.routes[:] = [
                    Mount(f"/{skill.name}", routes=skill.routes) for skill in state.registry.skills if skill.routes
                ]
                lifespan = self._board.lifespan
                told = await closing.enter_async_context(lifespan(routes)) if lifespan else None
            # Whatever a skill's or the user's lifespan raises: the server is told by it, and stops.
            except Exception as error:
                self.start_error = error
                raise
            yield told or {}


@asynccontextmanager
async def _open(
    board: Callboard, links: Links, leave: Callable[[], None], watching: Sequence[Observer]
) -> AsyncIterator[ServerState]:
    """Open the database and stand ready to run the agents; at the end, however it comes, every run is closed.

    `leave` is called when the process was asked to stop and the runs have ended; `watching` are observers of this
    application beside the board's.
    """
    settings = board.settings
    secret = settings.open_webui_jwt_secret
    async with AsyncExitStack() as closing:
        store = _make_store(board)
        closing.push_async_callback(store.close)
        await store.start()
        closing.push_async_callback(board.model.aclose)
        closing.enter_context(Watchdog())
        services = Services(store, board.model, board.redaction)
        agents = await closing.enter_async_context(board.agents.open(services))
        if interrupted := await store.close_interrupted_calls():
            _log.warning("calls_interrupted_by_last_stop", calls=interrupted)
        await closing.enter_async_context(retaining(store, settings))
        run_log = store.run_log(token_hex())
        metrics = Metrics(agents, lambda: _look_at(runs, store)) if settings.metrics else None
        observers = [*board.observers, *watching]
        if metrics:
            observers.append(metrics.tell)
            store.measure(metrics.note_access)
        tracing = Tracing(has_contents=settings.trace_content)
        runs = Runs(agents, services, settings, board.redaction, run_log, links, observers, tracing)
        await closing.enter_async_context(runs.owning())
        closing.push_async_callback(runs.close)
        preparing = asyncio.create_task(REQUESTS.run(prepare_reading), name="prepare reading")
        closing.push_async_callback(asyncio.wait, {preparing})
        stopping = closing.enter_context(Stopping())
        await closing.enter_async_context(_draining(stopping, runs, settings.drain_seconds, leave))
        yield ServerState(
            registry=agents,
            services=services,
            store=store,
            runs=runs,
            links=links,
            started_at=int(time.time()),
            bodies=BodyMemory(settings.max_request_mib * 1024 * 1024),
            stopping=stopping,
            vouching=Vouching(secret.get_secret_value() if secret else None),
            metrics=metrics,
        )


IN_MEMORY = "sqlite://"
"""The URL of a database that ends with its process."""


def _make_store(board: Callboard) -> Store:
    """Return the store that was given; else a new one, in the settings' database or in memory for `store=None`."""
    if isinstance(board.store, EllipsisType):
        settings = board.settings
        return Store(settings.resolved_database_url, settings.redis_url)
    return board.store or Store(IN_MEMORY)


def _look_at(runs: Runs, store: Store) -> Now:
    """Return what there is at this moment."""
    queues = store.queues
    return Now(
        open_runs=Counter(run.owner.agent_id for run in runs if not run.ended),
        listeners=runs.listeners,
        waiting_runs=runs.waiting,
        log_bytes=runs.log_bytes,
        waiting_writes=queues.waiting_writes,
        unwritten_turns=queues.unwritten_turns,
    )


@asynccontextmanager
async def _draining(
    stopping: Stopping, runs: Runs, drain_seconds: float, leave: Callable[[], None]
) -> AsyncIterator[None]:
    """Let runs come to their ends once the process is asked to stop, and leave the others: streams end with them.

    A server stops with its streams.
    """

    async def drain() -> None:
        try:
            await stopping.wait()
            await runs.drain(drain_seconds, stopping.hurried)
            await runs.close()
        finally:
            leave()
            stopping.leave()

    draining = asyncio.create_task(drain(), name="drain when stopping")
    try:
        yield
    finally:
        draining.cancel()
        await asyncio.wait({draining})


def _links(settings: Settings) -> Links:
    # Without an API key links end with the process that made them.
    secret = settings.api_key.get_secret_value() if settings.api_key else token_hex()
    key = hmac.digest(secret.encode(), b"callboard links", "sha256")
    return Links(settings.public_url or "", settings.result_link_seconds, key)


def _find_inspecting_keys(settings: Settings) -> frozenset[str] | None:
    """Return the names of the keys that open the inspector, None for every one.

    Where users are signed for, a client with a key is nobody by itself: there it shall not see what everybody said.
    """
    if settings.inspect_keys or settings.open_webui_jwt_secret:
        return frozenset({THE_KEY, *settings.inspect_keys})
    return None
