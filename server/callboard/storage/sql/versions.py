"""The version of a database's tables, and the migrations to the newest version.

Functions that need Alembic import it themselves, because the import takes time and most starts have nothing to migrate.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, inspect, select, table

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATIONS = Path(__file__).parent / "migrations"
_ALEMBIC = threading.Lock()
"""Alembic keeps its context in module globals, shared by all databases and event loops of the process."""
_PAUSE_SECONDS = 0.01
_VERSION = table("alembic_version", column("version_num"))


class UnknownVersion(Exception):
    """The database has a version that this Callboard does not have, usually that of a newer Callboard."""


@asynccontextmanager
async def alembic_lock() -> AsyncIterator[None]:
    """Let one migration of this process run at a time."""
    # Polled, because a thread that waits for the lock would still take it after its task was cancelled.
    while not _ALEMBIC.acquire(blocking=False):  # noqa: ASYNC110 - the holder may be in another event loop
        await asyncio.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        _ALEMBIC.release()


def migrate(connection: Connection) -> None:
    """Bring the tables to the newest version; raises `UnknownVersion`."""
    if _is_newest(connection):
        return
    from alembic import command
    from alembic.util import CommandError

    config = _make_config()
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise UnknownVersion(str(error)) from error


def count_missing(connection: Connection) -> int:
    """Return the number of migrations that the database lacks; raises `UnknownVersion`."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    current = MigrationContext.configure(connection).get_current_revision()
    scripts = ScriptDirectory.from_config(_make_config())
    try:
        if current is not None:
            scripts.get_revision(current)  # its error names the unknown version
        return len(list(scripts.iterate_revisions("head", current or "base")))
    except CommandError as error:
        raise UnknownVersion(str(error)) from error


def _is_newest(connection: Connection) -> bool:
    """Return whether the tables have the newest version, which the names of the migration files begin with."""
    newest = max(path.name.partition("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))
    if not inspect(connection).has_table(_VERSION.name):
        return False
    return connection.scalars(select(_VERSION.c.version_num)).all() == [newest]


def _make_config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config
