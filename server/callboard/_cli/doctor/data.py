"""Checks of the stored data: the data folder, the database and Redis. They change nothing."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from callboard._cli.doctor.settings import Context
from callboard.errors import StorageError
from callboard.extras import how_to_install, is_installed
from callboard.storage import Store


async def check_folder(context: Context) -> AsyncIterator[str]:
    """Check that the data folder is writable or can be created."""
    folder = context.settings.data_dir.expanduser().absolute()
    if problem := _find_obstacle(folder):
        yield f"✗ data folder: {problem} → correct that, or set CALLBOARD_DATA_DIR to another folder"
    elif folder.exists():
        yield f"✓ data folder: {folder}"
    else:
        yield f"– data folder: {folder} does not exist yet; the server creates it"


def _find_obstacle(folder: Path) -> str:
    """Return why the folder, or its nearest existing parent, is not writable; "" if it is writable."""
    existing = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        return f"{existing} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{existing} is not writable ({error.strerror})"


async def check_database(context: Context) -> AsyncIterator[str]:
    """Open the database, check its integrity, and count the migrations that it lacks."""
    database = Store(context.settings.resolved_database_url).database
    file = database.file
    if file and not file.exists():
        if problem := _find_obstacle(file.parent):
            yield f"✗ database: {file} cannot be created: {problem}"
        else:
            yield f"– database: {file} does not exist yet; the server creates it"
        return
    try:
        async with asyncio.timeout(context.options.timeout):
            missing = await database.missing_migrations()
            await database.check_integrity()
    finally:
        await database.close()
    if missing:
        yield f"– database: it lacks {missing} migrations of this version → callboard serve runs them when it starts"
    else:
        yield "✓ database: it can be opened, and its tables are up to date"


async def check_sqlite(context: Context) -> AsyncIterator[str]:
    """Warn if the version of SQLite may damage the database."""
    if not context.settings.resolved_database_url.startswith("sqlite"):
        return
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        yield (
            f"– SQLite: {sqlite3.sqlite_version} has the WAL-reset bug: two processes that write at the same moment "
            "may, rarely, damage the database → use 3.51.3 or later (3.50.7 and 3.44.6 are fixed too); until then run "
            "only one server process, and no `callboard forget` at the same time"
        )
    else:
        yield f"✓ SQLite: {sqlite3.sqlite_version}"


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Return whether a version of SQLite has the bug of https://www.sqlite.org/wal.html#walresetbug."""
    fixed = {(3, 44): 6, (3, 50): 7}
    return (3, 7, 0) <= version < (3, 51, 3) and version[2] < fixed.get(version[:2], version[2] + 1)


async def check_redis(context: Context) -> AsyncIterator[str]:
    """Connect, subscribe and publish, if a Redis URL is set."""
    url = context.settings.redis_url
    if url is None:
        return
    if context.settings.resolved_database_url.startswith("sqlite"):
        yield "– Redis: it has no effect with SQLite, which only one server can use"
    elif not is_installed("redis"):
        yield f"✗ Redis: its client is not installed → {how_to_install('redis')}"
    else:
        from callboard.storage.redis_bus import RedisBus, read_address

        try:
            async with asyncio.timeout(context.options.timeout):
                await RedisBus(url, read_address(url)).check()
            yield "✓ Redis: it answers"
        except StorageError as error:
            yield f"✗ Redis: {error} → check that it runs and accepts this server, or unset CALLBOARD_REDIS_URL"
