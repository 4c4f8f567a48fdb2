"""Opens an SQLite database file, and detects that the file was replaced by another one.

SQLite applies a log (`-wal`) to any database file with the matching name, and does not notice that its file was
replaced or overwritten: https://www.sqlite.org/howtocorrupt.html. Therefore every file has a random id in the field
`application_id` of its header: https://www.sqlite.org/pragma.html#pragma_application_id. Each start gives the file a
new id, and `callboard backup` gives one to each copy. The id of the last start is also in a file beside the database,
`callboard.db-id`.
"""

import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

from callboard.errors import StorageError

NEEDS_RESTORE = -1
"""In the id file: the database must not be opened before `callboard restore`. No database has this id."""
REPLACED = "its file was removed, replaced or written over: stop the server, run `callboard restore COPY`, start it"


@contextmanager
def locked_id_file(database: Path) -> Iterator[Callable[[int], None]]:
    """Lock out other processes that open or restore the database; yield a function that writes the id file.

    Waits until other processes have released the lock. Raises `OSError`.
    """
    descriptor = os.open(add_suffix(database, "-id"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write_id(file_id: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % file_id, 0)
        os.fsync(descriptor)

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        give_to_owner(descriptor, database)
        yield write_id
    finally:
        os.close(descriptor)


class OpenFile:
    """An open database file. It has a connection of its own, so that SQLite keeps the log until `close`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._log = add_suffix(path, "-wal")
        self._connection = connection
        self._id = read_id(path)
        self._inodes, self._written = self._look()

    @classmethod
    def open(cls, path: Path, patience_seconds: float) -> Self:
        """Open a file and give it a new id, unless another process has it open too.

        Raises `StorageError` if the log belongs to another file, `sqlite3.Error` if SQLite cannot open the file or
        another program still locks it after `patience_seconds`, and `OSError`.
        """
        with locked_id_file(path) as write_id, ExitStack() as unless_opened:
            check_log(path)
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            unless_opened.callback(connection.close)
            with suppress(sqlite3.OperationalError):
                stamp(connection)
            connection.execute(f"PRAGMA busy_timeout={patience_seconds * 1000:.0f}")
            connection.execute("PRAGMA journal_mode=WAL")
            # SQLite opens the log at the first statement that reads.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            write_id(read_id(path))
            unless_opened.pop_all()
            return cls(path, connection)

    def is_replaced(self) -> bool:
        """Return whether the file was removed, replaced or overwritten, or its log was removed."""
        inodes, written = self._look()
        if inodes != self._inodes:
            return True
        if written != self._written:
            # Checkpoints, also of other processes, write to the file too, but do not change the id.
            try:
                if read_id(self._path) != self._id:
                    return True
            except sqlite3.DatabaseError as error:
                # Other errors are no evidence: for example, the process may have no file descriptors left.
                return error.sqlite_errorcode == sqlite3.SQLITE_NOTADB
            self._written = written
        return False

    def _look(self) -> tuple[list[tuple[int, int] | None], tuple[int, int] | None]:
        """Return the inodes of the file and its log, and the size of the file with the time of its last write."""
        file, log = _stat(self._path), _stat(self._log)
        return [one and (one.st_dev, one.st_ino) for one in (file, log)], file and (file.st_size, file.st_mtime_ns)

    def close(self) -> None:
        """Close the connection; all other connections of this process must be closed before.

        SQLite then writes the log into the file. If the file was replaced, this damages the new file; the id file then
        prevents a start before `callboard restore`.
        """
        if self.is_replaced():
            with suppress(OSError), locked_id_file(self._path) as write_id:
                write_id(NEEDS_RESTORE)
        self._connection.close()


def check_log(database: Path) -> None:
    """Raise `StorageError` if the log beside a file belongs to another one: SQLite would apply it to the file."""
    id_file = add_suffix(database, "-id")
    last_id = id_file.read_text().strip() if id_file.exists() else ""
    # SQLite itself ignores the log of an empty file.
    if not last_id or _size(database) == 0:
        return
    if last_id == str(NEEDS_RESTORE):
        raise StorageError(
            f"the database {database} was replaced while a server used it, or a restore was interrupted: "
            "run `callboard restore COPY` with a copy of it"
        )
    if _size(add_suffix(database, "-wal")) > 0 and str(read_id(database)) != last_id:
        raise StorageError(
            f"the log {database}-wal belongs to another database file than the one beside it, which was copied there "
            "by hand: run `callboard restore COPY`, which replaces the file and removes the log"
        )


def stamp(connection: sqlite3.Connection) -> int:
    """Give a file a new id, write it to the file's header and not to the log, and return it.

    Raises `sqlite3.OperationalError` if another connection has the file open.
    """
    file_id = secrets.randbelow(2**31 - 1) + 1
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute(f"PRAGMA application_id={file_id}")
    return file_id


def read_id(database: Path) -> int:
    """Return the id in the header of a file, ignoring its log.

    Uses SQLite to open the file, because a process that closes any descriptor of a file loses its POSIX locks on it.
    """
    url = f"file:{quote(str(database))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(url, uri=True)) as connection:
        # During a checkpoint the header may count pages that are not written yet; this makes SQLite accept that.
        connection.execute("PRAGMA writable_schema=ON")
        return int(connection.execute("PRAGMA application_id").fetchone()[0])


def add_suffix(database: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to the database."""
    return database.with_name(f"{database.name}{suffix}")


def give_to_owner(file: int | Path, database: Path) -> None:
    """Change the owner of a file that root has created to the database's owner, so that the server can use it."""
    if os.geteuid() == 0:
        owner = (database if database.exists() else database.parent).stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _size(file: Path) -> int:
    found = _stat(file)
    return found.st_size if found else 0
