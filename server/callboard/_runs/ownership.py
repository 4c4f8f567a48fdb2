"""Which server owns which run: this one says that it is there, and goes on with what those that are gone have left."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from callboard._runs.left_run import LEFT_RUN
from callboard._runs.watch import Watch
from callboard.errors import CallboardError, RunLost, StorageError, UnknownChat
from callboard.storage import RELEASED_RUN, LoggedRun, Notification, RunLog
from callboard_protocol import Error

ROUNDS_A_LEASE = 5
"""How often, while a lease lasts, runs are looked for whose server is gone."""
DROP_SECONDS = 60.0

CarryOn = Callable[[LoggedRun], Awaitable[Error | None]]
"""Goes on with a run that is this server's by now; returns the last event of one that can only be ended."""

_log = structlog.get_logger(__name__)


class Ownership:
    """Owns runs in `run_log` as long as `held` says; ended ones are kept for so long, and so many bytes of a user.

    `end` ends a run that cannot be carried on. `is_closing`: this server is about to stop, and takes over nothing more.
    """

    def __init__(
        self,
        run_log: RunLog,
        watch: Watch,
        carry_on: CarryOn,
        lease_seconds: float,
        keep_ended_seconds: float,
        max_user_bytes: int,
        end: Callable[[LoggedRun, Error], Awaitable[None]],
        is_closing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run_log = run_log
        self._watch = watch
        self._carry_on = carry_on
        self._lease_seconds = lease_seconds
        self._round_seconds = lease_seconds / ROUNDS_A_LEASE
        self._keep_ended_seconds = keep_ended_seconds
        self._max_user_bytes = max_user_bytes
        self._is_closing = is_closing
        self._end = end
        self._is_due = asyncio.Event()
        self._carrying_on: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Be known as a server until the block ends, and take over the runs of those that are gone meanwhile.

        Raises `StorageError` where the store cannot be written at the beginning.
        """
        async with self._run_log.open(self._lease_seconds, self._hear):
            await self._take_over()
            if self._carrying_on:
                # Whoever asks for one at once should find it going on.
                await asyncio.wait(self._carrying_on, timeout=self._round_seconds)
            tasks = {
                asyncio.create_task(self._tend(), name="own runs"),
                asyncio.create_task(self._watch.look(), name="news of runs"),
            }
            try:
                yield
            finally:
                for task in (*tasks, *self._carrying_on):
                    task.cancel()
                await asyncio.wait({*tasks, *self._carrying_on})

    def _hear(self, notification: Notification) -> None:
        if notification.run_id == RELEASED_RUN:
            self._is_due.set()
        else:
            self._watch.hear(notification)

    async def _tend(self) -> None:
        dropped_at = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._round_seconds):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                if not self._is_closing():
                    await self._take_over()
                if time.monotonic() - dropped_at >= DROP_SECONDS:
                    await self._run_log.drop(self._keep_ended_seconds, self._max_user_bytes)
                    dropped_at = time.monotonic()
            except StorageError as error:
                _log.warning("runs_not_tended", error=str(error))
            except Exception as error:  # noqa: BLE001 - no run of a server that is gone would go on any more
                _log.error("runs_not_tended", exc_info=error)

    async def _take_over(self) -> None:
        for run in await self._run_log.take_over():
            task = asyncio.create_task(self._go_on(run), name=f"go on with {run.run_id}")
            self._carrying_on.add(task)
            task.add_done_callback(self._carrying_on.discard)

    async def _go_on(self, run: LoggedRun) -> None:
        """Carry a run on, or end it, however long the store takes; let it be where it is another server's by now."""
        with suppress(RunLost):
            while True:
                try:
                    if (ending := await self._try_to_carry_on(run)) is not None:
                        await self._end(run, ending)
                        _log.warning("left_run_ended", run_id=run.run_id, agent=run.agent_id)
                except StorageError as error:
                    _log.warning("left_run_waits", run_id=run.run_id, error=str(error))
                    await asyncio.sleep(self._round_seconds)
                else:
                    return

    async def _try_to_carry_on(self, run: LoggedRun) -> Error | None:
        """Carry a run on; return its last event where it can only be ended. Raises `StorageError`, `RunLost`."""
        try:
            return await self._carry_on(run)
        except UnknownChat:
            # It was deleted, and with it what there was to go on from.
            return LEFT_RUN
        except (StorageError, RunLost):
            raise
        except CallboardError as error:
            _log.warning("left_run_refused", run_id=run.run_id, error=str(error))
            return LEFT_RUN
        except Exception as error:  # noqa: BLE001 - another version may have kept it: who listens is to see an end
            _log.error("left_run_failed", run_id=run.run_id, exc_info=error)
            return LEFT_RUN
