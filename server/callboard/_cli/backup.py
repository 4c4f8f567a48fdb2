"""`callboard backup`: copies the database, even while servers write to it."""

import argparse

from callboard._logging import set_up_logging
from callboard.settings import load_settings
from callboard.storage import Store


def run(options: argparse.Namespace) -> int:
    """Copy the database, and print the path and the size of the copy."""
    set_up_logging("warning")
    copy = options.file
    Store(load_settings().resolved_database_url).database.back_up(copy)
    print(f"{copy}: {copy.stat().st_size:,} bytes, whole")
    return 0
