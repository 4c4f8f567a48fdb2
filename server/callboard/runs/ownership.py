"""Holds this server's lease on its runs, and takes over the runs of servers that have stopped."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import structlog

from callboard.errors import AgentRefused, CallboardError, RunLost, StorageError, UnknownAgent, UnknownChat
from callboard.runs.database_poller import DatabasePoller
from callboard.runs.left_runs import STOPPED_DURING_ANSWER
from callboard.storage.bus import RELEASED_RUN
from callboard.storage.sql.stored_runs import StoredRuns
from callboard.storage.values import StoredRun
from callboard_protocol import Error

CHECKS_PER_LEASE = 5
"""How often this server looks for runs of stopped servers during one lease."""
CLEANUP_SECONDS = 60.0

_log = structlog.get_logger(__name__)


class Ownership:
    """Owns runs in `stored_runs` while the block of `held` runs.

    `continue_run` continues a run that was taken over, or returns its last event if it can only be ended; `end` ends
    such a run. Ended runs are deleted after `keep_ended_seconds`, and the oldest ones of a user if they exceed
    `max_user_bytes`. The server takes over no more runs while `is_closing` returns True.
    """

    def __init__(
        self,
        stored_runs: StoredRuns,
        poller: DatabasePoller,
        continue_run: Callable[[StoredRun], Awaitable[Error | None]],
        lease_seconds: float,
        keep_ended_seconds: float,
        max_user_bytes: int,
        end: Callable[[StoredRun, Error], Awaitable[None]],
        is_closing: Callable[[], bool],
    ) -> None:
        self._stored_runs = stored_runs
        self._poller = poller
        self._continue = continue_run
        self._lease_seconds = lease_seconds
        self._check_seconds = lease_seconds / CHECKS_PER_LEASE
        self._keep_ended_seconds = keep_ended_seconds
        self._max_user_bytes = max_user_bytes
        self._is_closing = is_closing
        self._end = end
        self._is_due = asyncio.Event()
        self._continuing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold this server's lease until the block ends, and take over runs of servers that stop in the meantime.

        Raises `StorageError` if the database cannot be written at the beginning.
        """
        self._stored_runs.on_released = self._is_due.set
        async with self._stored_runs.open(self._lease_seconds, self._receive):
            await self._take_over()
            if self._continuing:
                # A client that asks for one of these runs right after the start should find it running.
                await asyncio.wait(self._continuing, timeout=self._check_seconds)
            tasks = {
                asyncio.create_task(self._check_regularly(), name="take over runs"),
                asyncio.create_task(self._poller.poll(), name="watch runs of other servers"),
            }
            try:
                yield
            finally:
                for task in (*tasks, *self._continuing):
                    task.cancel()
                await asyncio.wait({*tasks, *self._continuing})

    def _receive(self, run_id: str) -> None:
        if run_id == RELEASED_RUN:
            self._is_due.set()
        else:
            self._poller.receive(run_id)

    async def _check_regularly(self) -> None:
        cleaned_up_at = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._check_seconds):
                    await self._is_due.wait()
            self._is_due.clear()
            try:
                if not self._is_closing():
                    await self._take_over()
                if time.monotonic() - cleaned_up_at >= CLEANUP_SECONDS:
                    await self._stored_runs.drop(self._keep_ended_seconds, self._max_user_bytes)
                    cleaned_up_at = time.monotonic()
            except StorageError as error:
                _log.warning("left_runs_not_checked", error=str(error))
            except Exception as error:  # noqa: BLE001 - otherwise no run of a stopped server would be taken over any more
                _log.error("left_runs_not_checked", exc_info=error)

    async def _take_over(self) -> None:
        for run in await self._stored_runs.take_over():
            task = asyncio.create_task(self._continue_or_end(run), name=f"continue {run.run_id}")
            self._continuing.add(task)
            task.add_done_callback(self._continuing.discard)

    async def _continue_or_end(self, run: StoredRun) -> None:
        """Continue or end a run, retrying until the database works; do nothing if another server has taken it over."""
        with suppress(RunLost):
            while True:
                try:
                    if (ending := await self._try_to_continue(run)) is not None:
                        await self._end(run, ending)
                        _log.warning("left_run_ended", run_id=run.run_id, agent=run.agent_id)
                except StorageError as error:
                    _log.warning("left_run_waits", run_id=run.run_id, error=str(error))
                    await asyncio.sleep(self._check_seconds)
                else:
                    return

    async def _try_to_continue(self, run: StoredRun) -> Error | None:
        """Continue a run; return its last event if it can only be ended. Raises `StorageError`, `RunLost`."""
        try:
            return await self._continue(run)
        except UnknownChat:
            # The chat was deleted, and its messages with it.
            return STOPPED_DURING_ANSWER
        except (StorageError, RunLost):
            raise
        except CallboardError as error:
            _log.warning("left_run_refused", run_id=run.run_id, error=str(error))
            has_agent = not isinstance(error, AgentRefused | UnknownAgent)
            return STOPPED_DURING_ANSWER if has_agent else Error(message=str(error), code="interrupted")
        except Exception as error:  # noqa: BLE001 - another version may have stored it: listeners need an end
            _log.error("left_run_failed", run_id=run.run_id, exc_info=error)
            return STOPPED_DURING_ANSWER
