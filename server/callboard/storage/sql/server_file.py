"""A file that a server holds while it uses a SQLite database: others on the machine see by it that it is there.

The lock is the system's, which lets go of it when the process ends, however it ends: what a killed server has left is
taken over by the next one at once.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_held: set[int] = set()


@dataclass(frozen=True, slots=True)
class ServerFile:
    """The file of one server, and how it is held."""

    path: Path
    database: Path
    descriptor: int

    @classmethod
    def hold(cls, database: Path, server_id: str) -> Self:
        """Make the file of a server beside the database, and hold it; remove those of servers that are gone."""
        path = _path(database, server_id)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(path, descriptor):
                break
            # Another server took it for free between the two.
            os.close(descriptor)
        _held.add(descriptor)
        _remove_free_files(database, but=path)
        return cls(path, database, descriptor)

    def is_alone(self) -> bool:
        """Return whether no other server holds a file of this database; those of servers that are gone are removed."""
        return not self.are_others_there(self.database, but=self.path)

    def remove(self) -> None:
        """Remove the file, and let go of it."""
        self.path.unlink(missing_ok=True)
        if self.descriptor in _held:
            _held.discard(self.descriptor)
            os.close(self.descriptor)

    @staticmethod
    def are_others_there(database: Path, but: Path | None = None) -> bool:
        """Return whether a server holds a file of the database, other than `but`; those of gone ones are removed."""
        return _remove_free_files(database, but) > 0

    @staticmethod
    def is_gone(database: Path, server_id: str) -> bool:
        """Return whether nobody holds the file of that server, or it is not there; what is free is removed."""
        return _remove_free(_path(database, server_id))


def _let_go_in_child() -> None:
    """Let go of what the parent holds: a process that a tool has forked may outlive the server, and is none."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def _path(database: Path, server_id: str) -> Path:
    return database.with_name(f"{database.name}-server-{server_id}")


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_free_files(database: Path, but: Path | None) -> int:
    """Remove the files that no server holds, and return how many are held; `but` is left alone."""
    name = _path(database, "").name
    others = [file for file in database.parent.iterdir() if file.name.startswith(name) and file != but]
    held = [file for file in others if not _remove_free(file)]
    return len(held)


def _remove_free(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except PermissionError:
        # Another user's, who alone can tell.
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
