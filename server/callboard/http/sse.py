"""Sends a run's events over a connection, with pings, a timeout for stalled clients and an orderly shutdown."""

import asyncio
from collections.abc import AsyncIterator

import anyio
import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from callboard.errors import LogExpired, UnknownRun
from callboard.http.shutdown import Shutdown
from callboard.runs import FollowedRun, Run

PING_SECONDS = 15
SEND_TIMEOUT_SECONDS = 30
"""A connection whose client reads nothing for this long is closed; the client can resume."""

_log = structlog.get_logger(__name__)

SHUTDOWN_GRACE_SECONDS = 10
"""At a shutdown, streams end when their runs end or are released. After this time a stream is cut."""


class RunStream(EventSourceResponse):
    """A response with a run's events after number `after`, or with other `frames` made from the run.

    It ends with the run's last event, or when the run is released to another server, where clients resume.
    """

    def __init__(
        self, run: Run | FollowedRun, shutdown: Shutdown, after: int = 0, frames: AsyncIterator[bytes] | None = None
    ) -> None:
        self._run = run
        self._shutdown = shutdown
        super().__init__(
            frames or _read_frames(run, shutdown, after),
            ping=PING_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
            send_timeout=SEND_TIMEOUT_SECONDS,
            # Also set below when uvicorn cancels the stream because it shuts down on its own.
            shutdown_event=shutdown.urgent,
            shutdown_grace_period=SHUTDOWN_GRACE_SECONDS,
            headers={"X-Callboard-Run": run.run_id},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. If the server cancels it to shut down, frames are still sent until the run is released."""
        # Registered before the task starts, because a run without listeners may be cancelled at once.
        with self._run.listening():
            sending = asyncio.create_task(self._send(scope, receive, send))
            try:
                await asyncio.shield(sending)
            except asyncio.CancelledError:
                self._shutdown.hurry()
                await asyncio.wait({sending}, timeout=SHUTDOWN_GRACE_SECONDS)
                sending.cancel()
                raise

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            # Not raised: a stalled client is not a failure of the server.
            _log.info("listener_stalled", run_id=self._run.run_id)


async def _read_frames(run: Run | FollowedRun, shutdown: Shutdown, after: int) -> AsyncIterator[bytes]:
    # A run of this server ends its listeners itself when it is released.
    frames = run.listen(after) if isinstance(run, Run) else _iterate_until(shutdown.runs_released, run.listen(after))
    try:
        async for chunk in frames:
            yield chunk
    except (LogExpired, UnknownRun):
        # The status was already sent. The client resumes and gets the error as the status of that request.
        _log.info("listener_overtaken", run_id=run.run_id)


async def _iterate_until(end: anyio.Event, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks until `end` is set."""
    end_task = asyncio.ensure_future(end.wait())
    try:
        while not end.is_set():
            next_chunk = asyncio.ensure_future(anext(chunks, None))
            try:
                await asyncio.wait({next_chunk, end_task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                next_chunk.cancel()
                await asyncio.wait({next_chunk})
            if next_chunk.cancelled() or (chunk := next_chunk.result()) is None:
                return
            yield chunk
    finally:
        end_task.cancel()
