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
import threading
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
_COMMITS = slice(8, 12)
_FRAMES = slice(16, 20)
_SALTS = slice(32, 40)
_COPIED = slice(96, 100)
_COPYING = slice(128, 132)
_LOG_HEADER_BYTES = 32
_LOG_PAGE_BYTES = slice(8, 12)
_FRAME_HEADER_BYTES = 24
_PAGES_AFTER_COMMIT = slice(4, 8)


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
    """How far the log has been copied into the file.

    `salts` tell one beginning of the log from another. `commits` counts all transactions, from one beginning to the
    next. Of the log's `frames` `copied` are in the file, and `copying` are at most.
    """

    salts: bytes
    commits: int
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

    def is_the_last(self, now: "_Checkpoint", commits_in_log: Callable[[], int]) -> bool:
        """Return whether nothing was copied between this one and `now`; false where this one is not whole.

        It is the same log then, or the next one, begun after all of this one was copied. All that was committed
        since stands in the next one: else this one went on, and was copied once more, before it ended. A log that
        nothing was written to yet, as at a server's start, has no salts.
        """
        if not self.is_whole:
            return False
        if now.salts == self.salts:
            return (now.copied, now.copying) == (self.copied, self.copying)
        is_next = not any(self.salts) or now._beginnings == (self._beginnings + 1) % 2**32
        is_untouched = self.copied == self.frames and now.copied == now.copying == 0
        return is_next and is_untouched and (now.commits - self.commits) % 2**32 == commits_in_log()


class _Descriptors:
    """The files that this process reads, each opened once: to close one ends every lock of the process on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[_Identity, tuple[int, int]] = {}

    def take(self, path: Path) -> _Identity | None:
        """Hold the file that is at `path` now; None where there is none."""
        with self._lock:
            identity = _identity_at(path)
            if identity not in self._open:
                try:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    return None
                identity = _identify(os.fstat(descriptor))
                # One that has come to be there in between is left open twice.
                self._open.setdefault(identity, (descriptor, 0))
            descriptor, holders = self._open[identity]
            self._open[identity] = (descriptor, holders + 1)
            return identity

    def __getitem__(self, identity: _Identity) -> int:
        return self._open[identity][0]

    def let_go(self, identity: _Identity) -> None:
        """Close the file where nobody else in this process holds it."""
        with self._lock:
            descriptor, holders = self._open.pop(identity)
            if holders > 1:
                self._open[identity] = (descriptor, holders - 1)
            else:
                os.close(descriptor)


_descriptors = _Descriptors()


class DatabaseFile:
    """The file, and what it was like when the store last had a hand in it.

    Holds it open, and the index of its log: to close a file ends every lock that this process
    has on it, SQLite's too. So `let_go` only once the connections are closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = _add_suffix(path, "-wal")
        self._index = _add_suffix(path, "-shm")
        self._held: dict[Path, _Identity] = {}
        self._known = self._state()
        self._checkpoint: _Checkpoint | None = None
        self._content = 0
        self._is_checkpointing = False

    def hold(self) -> None:
        """Hold the file open, and the index of its log; those that are there and not held yet."""
        for path in (self.path, self._index):
            if path not in self._held and (identity := _descriptors.take(path)):
                self._held[path] = identity

    def remember(self) -> None:
        """Take the file as it is for ours; reads some of it."""
        self.hold()
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
        """Hold nothing open any more."""
        while self._held:
            _descriptors.let_go(self._held.popitem()[1])

    def put_back(self) -> None:
        """Put the file back that was set aside when the process was killed, where none is in its place."""
        aside = _add_suffix(self.path, WRITTEN_OVER)
        if aside.exists() and not self.path.exists():
            self.remove_log()
            aside.rename(self.path)

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
        known = self._checkpoint
        if not self._is_the_last(known) or self._read_content() == self._content:
            return False
        # Once more: SQLite says that a checkpoint begins before it writes any of it.
        return self._is_the_last(known)

    def _is_the_last(self, checkpoint: _Checkpoint | None) -> bool:
        now = self._read_checkpoint()
        if checkpoint is None or now is None:
            return False
        return checkpoint.is_the_last(now, lambda: self._count_commits(now.frames))

    def _count_commits(self, frames: int) -> int:
        """Return how many transactions stand in the first frames of the log."""
        try:
            with self._log.open("rb") as log:
                frame_bytes = _FRAME_HEADER_BYTES + int.from_bytes(log.read(_LOG_HEADER_BYTES)[_LOG_PAGE_BYTES], "big")
                starts = range(_LOG_HEADER_BYTES, _LOG_HEADER_BYTES + frames * frame_bytes, frame_bytes)
                headers = (os.pread(log.fileno(), _FRAME_HEADER_BYTES, start) for start in starts)
                return sum(any(header[_PAGES_AFTER_COMMIT]) for header in headers)
        except FileNotFoundError:
            return 0

    def can_tell(self) -> bool:
        """Return whether the last checkpoint was whole: only then can it be told that the file was written over."""
        return self._checkpoint is not None and self._checkpoint.is_whole

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        found = _look_at(self._log)
        return found.st_size if found else 0

    def remove_log(self) -> None:
        """Remove the log of the database that was here, if it is still there: it would be read into the new one."""
        if self._known.log is not None and _identity_at(self._log) == self._known.log:
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
        index = self._held.get(self._index)
        if index is None or index != _identity_at(self._index):
            return None
        found = _read(_descriptors[index], 0, _INDEX_BYTES)
        numbers = (int.from_bytes(found[at], sys.byteorder) for at in (_COMMITS, _FRAMES, _COPIED, _COPYING))
        return _Checkpoint(found[_SALTS], *numbers)

    def _read_content(self) -> int:
        if self.path not in self._held:
            return 0
        file = _descriptors[self._held[self.path]]
        size = os.fstat(file).st_size
        start = zlib.crc32(_read(file, 0, COMPARED_BYTES), size & 0xFFFFFFFF)
        return zlib.crc32(_read(file, max(0, size - COMPARED_BYTES), COMPARED_BYTES), start)

    def _state(self) -> _State:
        database = _look_at(self.path)
        return _State(
            _identify(database) if database else None,
            _identity_at(self._log),
            database.st_size if database else 0,
            database.st_mtime_ns if database else 0,
        )


def _add_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def _read(file: int, start: int, most_bytes: int) -> bytes:
    # Not from where the descriptor stands: other threads read from it too.
    return os.pread(file, most_bytes, start)


def _identify(found: os.stat_result) -> _Identity:
    return _Identity(found.st_dev, found.st_ino)


def _identity_at(path: Path) -> _Identity | None:
    found = _look_at(path)
    return _identify(found) if found else None


def _look_at(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
