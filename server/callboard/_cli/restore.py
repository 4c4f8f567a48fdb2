"""`callboard restore`: replaces the database with a copy, while no server uses it."""

import argparse

from callboard._logging import set_up_logging
from callboard.settings import load_settings
from callboard.storage import Store


def run(options: argparse.Namespace) -> int:
    """Restore the database, and print its path and its size."""
    set_up_logging("warning")
    database = Store(load_settings().resolved_database_url).database
    database.restore(options.file)
    assert database.file is not None
    print(f"{database.file}: {database.file.stat().st_size:,} bytes, restored from {options.file}")
    return 0
