"""Copies an SQLite database while servers write to it, and restores a copy while no server is running.

SQLite's online backup reads all pages in one transaction, which does not block writers in WAL mode.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from sqlalchemy import URL, create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from callboard._private_files import create_private_file, make_private_folder
from callboard.errors import StorageError
from callboard.storage.sql import tables
from callboard.storage.sql.database import INTERRUPT_ACTIVE_RUNS
from callboard.storage.sql.server_file import are_servers_running
from callboard.storage.sql.versions import UnknownVersion, count_missing

SUFFIXES = ("", "-journal", "-wal", "-shm")
PRIMARY_CODE = 0xFF
"""The bits of SQLite's extended error codes that have the primary code."""


def add_suffix(database: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to the database."""
    return database.with_name(f"{database.name}{suffix}")


def back_up(database: Path, copy: Path, patience_seconds: float) -> None:
    """Write a copy of the database into a new file that only its owner can read; no file is left after a failure.

    Waits `patience_seconds` for an exclusive lock of another program. Raises `StorageError`.
    """
    if not database.is_file():
        raise StorageError(f"there is no database {database} to copy: CALLBOARD_DATA_DIR or CALLBOARD_DATABASE_URL")
    try:
        with TemporaryDirectory(prefix=".callboard-", dir=copy.parent) as folder:
            draft = Path(folder, copy.name)
            os.close(create_private_file(draft))
            _copy(database, draft, patience_seconds)
            os.link(draft, copy)
    except FileExistsError:
        raise StorageError(f"there is a file {copy} already: choose another name, or move the file away") from None
    except OSError as error:
        raise StorageError(f"{copy} cannot be written ({error.strerror}): choose another place for the copy") from error
    except sqlite3.Error as error:
        raise StorageError(f"the database {database} cannot be copied to {copy}: {error}") from error


def _copy(database: Path, draft: Path, patience_seconds: float) -> None:
    # `mode=rw`, so that SQLite does not create the file if it was deleted meanwhile.
    source_url = f"file:{quote(str(database))}?mode=rw"
    with closing(sqlite3.connect(source_url, uri=True)) as source, closing(sqlite3.connect(draft)) as target:
        source.backup(target, progress=_give_up_after(patience_seconds))
    if (damage := _finish_draft(draft, "quick_check")) != "ok":
        raise StorageError(f"the database {database} is damaged ({damage}): no copy was made")


def restore(copy: Path, database: Path, patience_seconds: float) -> None:
    """Replace the content of a database, which must not be open, by a copy; the copy is not changed.

    Raises `StorageError` without changing the database if the copy is not a complete database of Callboard.
    """
    if not copy.is_file():
        raise StorageError(f"there is no copy {copy}: name a file that `callboard backup` has made")
    if database.exists() and copy.samefile(database):
        raise StorageError(f"{copy} is the database itself: name a copy of it")
    try:
        make_private_folder(database.parent)
        with TemporaryDirectory(prefix=".callboard-", dir=database.parent) as folder:
            draft = Path(folder, database.name)
            _read_copy(copy, draft)
            _write_over(database, draft, patience_seconds)
    except OSError as error:
        raise StorageError(f"{copy} cannot be restored to {database} ({error.strerror})") from error
    except sqlite3.Error as error:
        raise StorageError(f"{copy} cannot be restored to {database} ({error})") from error


def _read_copy(copy: Path, draft: Path) -> None:
    """Write the copy to the draft, apply the copy's own log or journal, and check the result."""
    try:
        for suffix in ("", "-wal", "-journal"):
            if (part := add_suffix(copy, suffix)).exists():
                os.close(create_private_file(add_suffix(draft, suffix)))
                shutil.copyfile(part, add_suffix(draft, suffix))
        if (damage := _finish_draft(draft, "integrity_check")) != "ok":
            raise StorageError(f"the copy {copy} is damaged ({damage}): choose another copy")
        _check_tables(draft)
    except (sqlite3.Error, SQLAlchemyError) as error:
        raise StorageError(f"the copy {copy} cannot be read ({error}): choose another copy") from error
    except UnknownVersion as error:
        raise StorageError(
            f"the copy {copy} was made by another version of Callboard ({error}): install that version"
        ) from error


def _write_over(database: Path, draft: Path, patience_seconds: float) -> None:
    """Write the draft into the database in one transaction: an interrupted restore leaves the old content."""
    if are_servers_running(database):
        raise StorageError(f"a server uses the database {database}: stop it first")
    try:
        _copy_pages(draft, database, patience_seconds)
    except sqlite3.DatabaseError as error:
        match error.sqlite_errorcode & PRIMARY_CODE:
            case sqlite3.SQLITE_BUSY:
                raise StorageError(f"another program uses the database {database}: stop it first") from error
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                for suffix in SUFFIXES:
                    add_suffix(database, suffix).unlink(missing_ok=True)
                _copy_pages(draft, database, patience_seconds)
            case _:
                raise


def _copy_pages(draft: Path, database: Path, patience_seconds: float) -> None:
    if not database.exists():
        os.close(create_private_file(database))
        if os.geteuid() == 0:
            # The server, which may be another user, writes to this file.
            shutil.chown(database, database.parent.stat().st_uid, database.parent.stat().st_gid)
    with closing(sqlite3.connect(draft)) as source, closing(sqlite3.connect(database, timeout=0)) as target:
        # Applies and removes the log of the old content; fails while another connection has the file open.
        target.execute("PRAGMA journal_mode=DELETE")
        source.backup(target, progress=_give_up_after(patience_seconds))


def _finish_draft(draft: Path, check: str) -> str:
    """Write a draft's log into its file, interrupt its active runs, and return the result of SQLite's check."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'runs'").fetchone():
            connection.execute(INTERRUPT_ACTIVE_RUNS)
        [found] = connection.execute(f"PRAGMA {check}(1)").fetchone()
    _sync(draft)
    return " ".join(str(found).split())


def _check_tables(draft: Path) -> None:
    """Raise `StorageError` if the draft lacks tables of its version, `UnknownVersion` if the version is unknown."""
    engine = create_engine(URL.create("sqlite", database=str(draft)), poolclass=NullPool)
    with engine.connect() as connection:
        existing = set(inspect(connection).get_table_names())
        missing_migrations = count_missing(connection)
    needed = {"alembic_version", "messages"} if missing_migrations else set(tables.metadata.tables)
    if missing := sorted(needed - existing):
        raise StorageError(f"the copy is no database of Callboard: it lacks the table {missing[0]}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_up_after(seconds: float) -> Callable[[int, int, int], None]:
    deadline = time.monotonic() + seconds

    def check(status: int, _remaining: int, _pages: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() >= deadline:
            raise StorageError("the database cannot be copied: another program has locked it")

    return check
