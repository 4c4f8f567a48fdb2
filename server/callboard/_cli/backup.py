"""`callboard backup`: a copy of the database, made while servers write to it."""

import argparse

from callboard._logging import set_up_logging
from callboard._settings import load_settings
from callboard.storage import Store


def run(options: argparse.Namespace) -> int:
    """Copy the database, and print where the copy is and how large."""
    set_up_logging("warning")
    copy = options.file
    Store(load_settings().resolved_database_url).database.back_up(copy)
    print(f"{copy}: {copy.stat().st_size:,} bytes, whole")
    return 0
