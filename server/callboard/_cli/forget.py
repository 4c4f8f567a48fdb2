"""`callboard forget`: deletes all stored data of a user."""

import argparse
import asyncio
from secrets import token_hex

from callboard._logging import set_up_logging
from callboard.runs.forgetting import forget_user
from callboard.settings import load_settings
from callboard.storage import Store

COMMAND = "callboard forget"
"""The caller in the log, where requests have the name of a key."""


def run(options: argparse.Namespace) -> int:
    """Delete the data, and print the number of deleted rows of each kind."""
    set_up_logging("warning")
    asyncio.run(_forget(options.user))
    return 0


async def _forget(user_id: str) -> None:
    settings = load_settings()
    store = Store(settings.resolved_database_url, settings.redis_url)
    await store.start()
    try:
        stored_runs = store.stored_runs(token_hex())
        # Opening the stored runs announces this process: a server without peers does not look for their signals.
        async with stored_runs.open(settings.lease_seconds, lambda _: None):
            forgotten = await forget_user(store, stored_runs, user_id, COMMAND)
    finally:
        await store.close()
    for kind, count in forgotten.items():
        print(f"{kind}: {count}")
