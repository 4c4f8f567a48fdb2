"""The file of an SQLite database that is open: it tells whether somebody deleted it, replaced it or wrote over it.

SQLite notices none of that: it goes on with a file that nobody else can find any more, or
takes the pages that it remembers for those that are there. What of the old database is
still in its write-ahead log must not end up in the new one.

The store makes SQLite's checkpoints itself, so that every other change of the file is
somebody else's doing: that of a program that uses SQLite, whose checkpoint stands in the
index of the log (https://www.sqlite.org/walformat.html, 2.1), or that of one that does not.
"""

import os
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

WRITTEN_OVER = "-written-over"
COMPARED_BYTES = 8 * 1024 * 1024
"""The bytes of the file's beginning, and of its end, that tell it from another."""
_INDEX_BYTES = 136
_FRAMES = slice(16, 20)
_SALTS = slice(32, 40)
_COPIED = slice(96, 100)
_COPYING = slice(128, 132)


class Found(Enum):
    """A finding of what has become of the file."""

    SAME = "same"
    REPLACED = "replaced"
    """The finding that the file is gone or another one; the connections still have the old one."""
    WITHOUT_LOG = "without its log"
    """The finding that the file is there, and its log gone or another one; the connections still have the old one."""
    CHANGED = "changed"
    """The finding that it is the same file, but others have written to it."""


@dataclass(frozen=True, slots=True)
class _Identity:
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class _State:
    database: _Identity | None
    log: _Identity | None
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A log, by the salts that each beginning gives it, and how many of its frames have been copied into the file."""

    salts: bytes
    frames: int
    copied: int
    copying: int

    @property
    def _beginnings(self) -> int:
        # The first salt counts them, from a random number on.
        return int.from_bytes(self.salts[:4], "big")

    @property
    def is_whole(self) -> bool:
        """False of one that is under way or broke off: how much of it is in the file nobody knows."""
        return self.copied == self.copying

    def is_the_last(self, now: "_Checkpoint") -> bool:
        """Return whether none has copied anything since: the log goes on, or has begun anew after all of it was copied.

        Never of one that is not whole.
        """
        if not self.is_whole:
            return False
        if now.salts == self.salts:
            return (now.copied, now.copying) == (self.copied, self.copying)
        is_next = now._beginnings == (self._beginnings + 1) % 2**32
        return is_next and self.copied == self.frames and now.copied == now.copying == 0


class DatabaseFile:
    """The file, and what it was like when the store last had a hand in it.

    Holds it open, and the index of its log: to close a file ends every lock that this process
    has on it, SQLite's too. So `let_go` only once the connections are closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = _add_suffix(path, "-wal")
        self._index = _add_suffix(path, "-shm")
        self._open: dict[Path, int] = {}
        self._known = self._state()
        self._checkpoint: _Checkpoint | None = None
        self._content = 0
        self._is_checkpointing = False

    def remember(self) -> None:
        """Take the file as it is for ours; reads some of it."""
        for path in (self.path, self._index):
            if path not in self._open and path.exists():
                self._open[path] = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._known = self._state()
        self._checkpoint = self._read_checkpoint()
        self._content = self._read_content()

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Take for ours what changes in the file while the block makes a checkpoint; at its end some of it is read."""
        self._is_checkpointing = True
        try:
            yield
        finally:
            now = self._state()
            if (now.database, now.log) == (self._known.database, self._known.log):
                self.remember()
            self._is_checkpointing = False

    def let_go(self) -> None:
        """Close what is held open."""
        while self._open:
            os.close(self._open.popitem()[1])

    def look(self) -> Found:
        """Return what has become of it since."""
        now = self._state()
        known = self._known
        if now.database is None or now.database != known.database:
            return Found.REPLACED
        if (now.size, now.changed_ns) != (known.size, known.changed_ns) and not self._is_checkpointing:
            return Found.CHANGED
        return Found.SAME if now.log == known.log else Found.WITHOUT_LOG

    def was_written_over(self) -> bool:
        """Return whether a changed file was surely written to by something that knows nothing of SQLite.

        Reads some of it. Not sure is what a checkpoint of somebody else may have written, one that is
        under way included.
        """
        now = self._read_checkpoint()
        known = self._checkpoint
        if not (known and now and known.is_the_last(now)) or self._read_content() == self._content:
            return False
        # SQLite says that a checkpoint begins before it writes any of it.
        later = self._read_checkpoint()
        return later is not None and now.is_the_last(later)

    def can_tell(self) -> bool:
        """Return whether the last checkpoint was whole: only then can it be told that the file was written over."""
        return self._checkpoint is not None and self._checkpoint.is_whole

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        found = _look_at(self._log)
        return found.st_size if found else 0

    def remove_log(self) -> None:
        """Remove the log of the database that was here, if it is still there: it would be read into the new one."""
        if self._known.log is not None and self._state().log == self._known.log:
            self._log.unlink(missing_ok=True)
            self._index.unlink(missing_ok=True)

    async def part_from_log(self, close: Callable[[], Awaitable[None]]) -> None:
        """Let `close` end the connections without what is in their log, which is of the file as it was before.

        The last connection of a database writes the log into the file, unless that is no longer where it was.
        """
        aside = _add_suffix(self.path, WRITTEN_OVER)
        self.path.rename(aside)
        try:
            await close()
            self.remove_log()
        finally:
            aside.rename(self.path)

    def _read_checkpoint(self) -> _Checkpoint | None:
        """Return how far the log has been copied into the file, and which log it is; None where there is no log."""
        index = self._open.get(self._index)
        if index is None or _identify(os.fstat(index)) != _identify(_look_at(self._index)):
            return None
        found = _read(index, 0, _INDEX_BYTES)
        frames, copied, copying = (int.from_bytes(found[at], sys.byteorder) for at in (_FRAMES, _COPIED, _COPYING))
        return _Checkpoint(found[_SALTS], frames, copied, copying)

    def _read_content(self) -> int:
        if self.path not in self._open:
            return 0
        file = self._open[self.path]
        size = os.fstat(file).st_size
        start = zlib.crc32(_read(file, 0, COMPARED_BYTES), size & 0xFFFFFFFF)
        return zlib.crc32(_read(file, max(0, size - COMPARED_BYTES), COMPARED_BYTES), start)

    def _state(self) -> _State:
        database = _look_at(self.path)
        return _State(
            _identify(database),
            _identify(_look_at(self._log)),
            database.st_size if database else 0,
            database.st_mtime_ns if database else 0,
        )


def _add_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _read(file: int, start: int, most_bytes: int) -> bytes:
    # Not from where the descriptor stands: other threads read from it too.
    return os.pread(file, most_bytes, start)


def _identify(found: os.stat_result | None) -> _Identity | None:
    return _Identity(found.st_dev, found.st_ino) if found else None


def _look_at(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
