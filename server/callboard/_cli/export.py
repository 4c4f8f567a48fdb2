"""`callboard export`: prints a stored chat, or all stored data of a user."""

import argparse
import asyncio
import sys

from callboard._logging import set_up_logging
from callboard.settings import load_settings
from callboard.storage import Store
from callboard.storage.values import ANY_USER
from callboard.text import write_json_line


def run(options: argparse.Namespace) -> int:
    """Print the chat's messages, or the user's data, as JSON Lines."""
    set_up_logging("warning")
    asyncio.run(_print_lines(options.chat, options.user))
    return 0


async def _print_lines(chat_id: str | None, user_id: str | None) -> None:
    store = await Store.open(load_settings().resolved_database_url)
    try:
        pages = store.chats(ANY_USER).export_pages(chat_id) if chat_id is not None else store.read_user(user_id or "")
        async for lines in pages:
            for line in lines:
                sys.stdout.write(write_json_line(line))
    finally:
        await store.close()
