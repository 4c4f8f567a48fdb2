"""Server-sent events over a connection: headers, pings, a reader that stalls, one that leaves."""

from collections.abc import AsyncIterator

import structlog
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus, SendTimeoutError
from starlette.types import Receive, Scope, Send

from callboard.errors import LogExpired
from callboard.runs import Run

PING_SECONDS = 15
SEND_TIMEOUT_SECONDS = 30
"""A reader that takes nothing for so long is let go; it can resume."""

_log = structlog.get_logger(__name__)

# At shutdown the runs end first, each with a last event, and their streams with them;
# sse-starlette would cut the streams before that.
AppStatus.enable_automatic_graceful_drain = False


class RunStream(EventSourceResponse):
    """Frames that tell of a run: its events from the one after `after`, unless other `frames` are given."""

    def __init__(self, run: Run, after: int = 0, frames: AsyncIterator[bytes] | None = None) -> None:
        self._run = run
        super().__init__(
            frames or _frames(run, after),
            ping=PING_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
            send_timeout=SEND_TIMEOUT_SECONDS,
            headers={"X-Callboard-Run": run.run_id},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; a reader that stalls is no failure of the server."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            _log.info("listener_stalled", run_id=self._run.run_id)


async def _frames(run: Run, after: int) -> AsyncIterator[bytes]:
    try:
        async for chunk in run.listen(after):
            yield chunk
    except LogExpired:
        # The answer has begun, so the status is spent: the client resumes and is told then.
        _log.info("listener_overtaken", run_id=run.run_id)
