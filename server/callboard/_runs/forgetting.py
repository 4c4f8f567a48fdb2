"""Forgets a user: their runs are ended first, wherever they go on, or these would write what was just deleted."""

import asyncio
import time
from collections.abc import Mapping

import structlog

from callboard.storage import RunLog, Store

PATIENCE_SECONDS = 15.0
"""The seconds that runs may take to end; a server that is gone ends none."""
LOOK_SECONDS = 0.1

_log = structlog.get_logger(__name__)


async def forget_user(store: Store, run_log: RunLog, user_id: str, key: str | None) -> Mapping[str, int]:
    """End the user's runs, and forget them and all else that is kept of the user; return how much of each kind.

    `key` is the name of who asks for it, for the audit. What the user begins meanwhile may be kept. Raises
    `StorageError`.
    """
    # Otherwise a run that is not even begun in the database would come after all.
    await store.database.late.store()
    await _end_runs(run_log, user_id)
    runs = await run_log.forget_user(user_id)
    forgotten = {**await store.forget_user(user_id, key), "run": runs}
    _log.info("user_forgotten", user_id=user_id, **forgotten)
    return forgotten


async def _end_runs(run_log: RunLog, user_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    for run in await run_log.of_user(user_id):
        if not run.is_ended:
            await run_log.cancel(run.run_id)
    # They end in other processes, of which nobody tells this one.
    while time.monotonic() < deadline:
        if all(run.is_ended for run in await run_log.of_user(user_id)):
            return
        await asyncio.sleep(LOOK_SECONDS)
