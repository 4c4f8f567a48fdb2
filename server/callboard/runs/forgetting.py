"""Deletes the data of a user. Live runs on all servers are ended first; they would write deleted data again."""

import asyncio
import time
from collections.abc import Mapping

import structlog

from callboard.storage import Store
from callboard.storage.sql.stored_runs import StoredRuns

END_RUNS_SECONDS = 15.0
"""The longest wait for the end of runs; a run whose server has crashed does not end."""
POLL_SECONDS = 0.1

_log = structlog.get_logger(__name__)


async def forget_user(store: Store, stored_runs: StoredRuns, user_id: str, key: str | None) -> Mapping[str, int]:
    """End the user's runs, then delete all data of the user; return the number of deleted items of each kind.

    `key` is the name of the API key of the request, for the log. Data of runs that the user starts in the meantime
    may remain. Raises `StorageError`.
    """
    await _end_runs(stored_runs, user_id)
    runs = await stored_runs.forget_user(user_id)
    forgotten = {**await store.forget_user(user_id), "run": runs}
    _log.info("user_forgotten", user_id=user_id, key=key, **forgotten)
    return forgotten


async def _end_runs(stored_runs: StoredRuns, user_id: str) -> None:
    deadline = time.monotonic() + END_RUNS_SECONDS
    for run in await stored_runs.of_user(user_id):
        if not run.is_ended:
            await stored_runs.cancel(run.run_id)
    # Other processes end them, and send no notification.
    while time.monotonic() < deadline:
        if all(run.is_ended for run in await stored_runs.of_user(user_id)):
            return
        await asyncio.sleep(POLL_SECONDS)
