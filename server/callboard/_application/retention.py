"""Retention: an application drops expired data shortly after its start, then every hour."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import structlog

from callboard.errors import StorageError
from callboard.settings import Settings
from callboard.storage import Store
from callboard.storage.values import SECONDS_A_DAY

RETENTION_ROUND_SECONDS = 3600
FIRST_ROUND_SECONDS = 60
"""Not at the start, when users wait for the server."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def retaining(store: Store, settings: Settings) -> AsyncGenerator[None, None]:
    """Drop expired data every hour until the block ends."""
    stopping = asyncio.Event()
    retention = asyncio.create_task(_retain(store, settings, stopping), name="retention")
    try:
        yield
    finally:
        # Not cancelled, because a cancelled statement leaves its connection open.
        stopping.set()
        await retention


async def _retain(store: Store, settings: Settings, stopping: asyncio.Event) -> None:
    wait_seconds = FIRST_ROUND_SECONDS
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await stopping.wait()
                return
        wait_seconds = RETENTION_ROUND_SECONDS
        try:
            await drop_expired(store, settings)
        except StorageError as error:
            _log.warning("old_results_not_dropped", error=str(error))


async def drop_expired(store: Store, settings: Settings) -> None:
    """Drop all data that is older than the settings allow."""
    now = time.time()
    await store.drop_usage()
    await store.database.truncate_log()
    if settings.retention_days:
        chats = await store.drop_chats(now - settings.retention_days * SECONDS_A_DAY)
        _log.info("chats_dropped", chats=chats)
    if settings.result_retention_days:
        dropped = await store.drop_uncited(now - settings.result_retention_days * SECONDS_A_DAY)
        _log.info("uncited_results_dropped", results=dropped)
    if settings.response_retention_days:
        before = now - settings.response_retention_days * SECONDS_A_DAY
        chats = await store.drop_own_chats(before)
        items = await store.drop_response_items(before)
        _log.info("responses_dropped", chats=chats, items=items)
