"""Files and folders that only their owner can read and write, whatever the umask."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
"""The permission bits of everybody except the owner."""


def make_private_folder(folder: Path) -> None:
    """Create the folder and its missing parents for their owner only; existing folders are not changed."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def create_private_file(file: Path) -> int:
    """Create the file for its owner only and return its descriptor; raises `FileExistsError` if it exists."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def read_private_file(file: Path) -> str:
    """Return the text of a file that only its owner, who is this user or root, can read and write.

    Raises `OSError`, with the reason as `strerror`, if there is no such file or it may not be trusted.
    """
    # O_NONBLOCK, because opening a named pipe blocks until something writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is a folder, a named pipe or a device, not a file")
        if os.name == "posix" and found.st_mode & OTHERS:
            raise OSError(errno.EPERM, f"others can read or write it: `chmod 600 {file}` changes that")
        if os.name == "posix" and found.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise OSError(errno.EPERM, "it belongs to another user")
        with os.fdopen(descriptor, encoding="utf-8", closefd=False) as opened:
            return opened.read()
    except UnicodeDecodeError:
        raise OSError(errno.EINVAL, "it is not text") from None
    finally:
        os.close(descriptor)


def make_private(file: Path) -> None:
    """Remove the permissions of others from a file, if this user owns it."""
    with suppress(FileNotFoundError):
        found = file.stat()
        is_own = os.name == "posix" and found.st_uid == os.geteuid()
        if is_own and stat.S_ISREG(found.st_mode) and found.st_mode & OTHERS:
            file.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
