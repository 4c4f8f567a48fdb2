"""`callboard export`, `forget`, `backup` and `restore`: the commands for stored data."""

import argparse
import asyncio
import sys
from secrets import token_hex

from callboard._logging import set_up_logging
from callboard.runs.forgetting import forget_user
from callboard.settings import load_settings
from callboard.storage import Store
from callboard.storage.values import ANY_USER
from callboard.text import write_json_line

FORGET = "callboard forget"
"""The caller in the log, where requests have the name of a key."""


def run(options: argparse.Namespace) -> int:
    """Run the command that the options name."""
    set_up_logging("warning")
    match options.command:
        case "export":
            asyncio.run(_export(options.chat, options.user))
        case "forget":
            asyncio.run(_forget(options.user))
        case "backup":
            copy = options.file
            Store(load_settings().resolved_database_url).database.back_up(copy)
            print(f"{copy}: {copy.stat().st_size:,} bytes, whole")
        case "restore":
            database = Store(load_settings().resolved_database_url).database
            database.restore(options.file)
            assert database.file is not None
            print(f"{database.file}: {database.file.stat().st_size:,} bytes, restored from {options.file}")
    return 0


async def _export(chat_id: str | None, user_id: str | None) -> None:
    """Print the chat's messages, or the user's data, as JSON Lines."""
    store = await Store.open(load_settings().resolved_database_url)
    try:
        pages = store.chats(ANY_USER).export_pages(chat_id) if chat_id is not None else store.read_user(user_id or "")
        async for lines in pages:
            for line in lines:
                sys.stdout.write(write_json_line(line))
    finally:
        await store.close()


async def _forget(user_id: str) -> None:
    """Delete all stored data of a user, and print the number of deleted rows of each kind."""
    settings = load_settings()
    store = Store(settings.resolved_database_url, settings.redis_url)
    await store.start()
    try:
        stored_runs = store.stored_runs(token_hex())
        # Opening the stored runs announces this process: a server without peers does not look for their signals.
        async with stored_runs.open(settings.lease_seconds, lambda _: None):
            forgotten = await forget_user(store, stored_runs, user_id, FORGET)
    finally:
        await store.close()
    for kind, count in forgotten.items():
        print(f"{kind}: {count}")
