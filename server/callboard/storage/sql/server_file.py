"""A file that a server locks while it uses an SQLite database; it shows other processes that the server is running.

The operating system releases the lock when the process ends, even if it is killed. So the next server can take over the
runs of a killed server at once.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_held: set[int] = set()
"""The descriptors of the locked files of this process."""


@dataclass(frozen=True, slots=True)
class ServerFile:
    """The locked file of one server."""

    path: Path
    descriptor: int

    @classmethod
    def hold(cls, database: Path, server_id: str) -> Self:
        """Create and lock the file of a server beside the database; remove the files of servers that have ended."""
        path = _path(database, server_id)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(path, descriptor):
                break
            # Another server removed the file between opening and locking.
            os.close(descriptor)
        _held.add(descriptor)
        are_servers_running(database, but=path)
        return cls(path, descriptor)

    def remove(self) -> None:
        """Remove the file and release its lock."""
        self.path.unlink(missing_ok=True)
        if self.descriptor in _held:
            _held.discard(self.descriptor)
            os.close(self.descriptor)


def are_servers_running(database: Path, but: Path | None = None) -> bool:
    """Return whether a server has a locked file for the database, other than `but`; remove the unlocked files."""
    name = _path(database, "").name
    others = [file for file in database.parent.iterdir() if file.name.startswith(name) and file != but]
    locked = [file for file in others if not _remove_if_unlocked(file)]
    return bool(locked)


def is_gone(database: Path, server_id: str) -> bool:
    """Return whether the file of a server does not exist or is not locked; remove it if it is not locked."""
    return _remove_if_unlocked(_path(database, server_id))


def _close_in_child() -> None:
    """Close inherited descriptors: a process that a tool has forked must not hold the lock after the server's end."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


def _path(database: Path, server_id: str) -> Path:
    return database.with_name(f"{database.name}-server-{server_id}")


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_if_unlocked(path: Path) -> bool:
    """Return False if the file is locked, or if that cannot be checked; otherwise remove it and return True."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        # The file of another user's process; assume that the process is running.
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)
