"""Checks of the data folder and the database, which change neither."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from callboard._cli.doctor.findings import Context, Finding, broken, unset, well
from callboard.errors import StorageError
from callboard.storage import Store
from callboard.storage.sql.database import Database

FOLDER = "data folder"
DATABASE = "database"
SQLITE = "SQLite"


async def check_data_dir(context: Context) -> AsyncIterator[Finding]:
    """Look at the folder: there and writable, or one that can be made."""
    folder = context.settings.data_dir.expanduser().absolute()
    if problem := _find_obstacle(folder):
        yield broken(FOLDER, problem, "mend that, or set CALLBOARD_DATA_DIR to another folder")
    elif folder.exists():
        yield well(FOLDER, str(folder))
    else:
        yield unset(FOLDER, f"{folder} is not there yet; the server makes it")


def _find_obstacle(folder: Path) -> str:
    """Return why nothing can be written in the folder, be it there or to be made; nothing where it can."""
    existing = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        return f"{existing} is no folder"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{existing} cannot be written ({error.strerror})"


async def check_database(context: Context) -> AsyncIterator[Finding]:
    """Open the database and count the migrations that it has not seen."""
    try:
        store = Store(context.settings.resolved_database_url)
    except StorageError as error:
        yield broken(DATABASE, error)
        return
    try:
        async with asyncio.timeout(context.timeout_seconds):
            finding = await _open(store.database)
    except StorageError as error:
        finding = broken(DATABASE, error)
    except TimeoutError:
        finding = broken(DATABASE, "it does not answer in time", "see that it runs, or set CALLBOARD_DATABASE_URL")
    await store.close()
    yield finding


async def check_sqlite(context: Context) -> AsyncIterator[Finding]:
    """Name a version of SQLite that may damage the database."""
    if not context.settings.resolved_database_url.startswith("sqlite"):
        return
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        yield unset(
            SQLITE,
            f"{sqlite3.sqlite_version} has the WAL-reset bug: two processes that write at the same moment may, rarely, "
            "damage the database",
            "use 3.51.3 or later (3.50.7 and 3.44.6 are mended too); until then one server process, and no "
            "`callboard forget` beside it",
        )
    else:
        yield well(SQLITE, sqlite3.sqlite_version)


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Return whether a version of SQLite has the bug of https://www.sqlite.org/wal.html#walresetbug."""
    fixed = {(3, 44): 6, (3, 50): 7}
    return (3, 7, 0) <= version < (3, 51, 3) and version[2] < fixed.get(version[:2], version[2] + 1)


async def _open(database: Database) -> Finding:
    # SQLite would make the file. The path of a URI (file:…) is SQLite's to read.
    if database.file is not None and not str(database.file).startswith("file:") and not database.file.exists():
        if problem := _find_obstacle(database.file.absolute().parent):
            return broken(DATABASE, f"{database.file} cannot be made: {problem}")
        return unset(DATABASE, f"{database.file} is not there yet; the server makes it")
    missing = await database.missing_migrations()
    await database.check_integrity()
    if missing:
        return unset(
            DATABASE, f"it lacks {missing} migrations of this version", "callboard serve makes them at its start"
        )
    return well(DATABASE, "it opens, and its tables are the newest")
