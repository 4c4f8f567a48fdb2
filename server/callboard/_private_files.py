"""Files and folders that are their owner's alone, whatever the umask and wherever their folder came from."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TextIO

OTHERS = 0o077


def make_private_folder(folder: Path) -> None:
    """Create the folder and what is missing above it for their owner alone; one that is there stays as it is."""
    if folder.is_dir():
        return
    make_private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def create_private_file(file: Path) -> int:
    """Create the file for its owner alone and return its descriptor; raises `FileExistsError` where it is there."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def open_private_file(file: Path) -> TextIO:
    """Open a file to read its text; raises `OSError`.

    What is no regular file is refused: a named pipe would be waited for, for ever.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a folder, a named pipe or a device, and no file")
    return os.fdopen(descriptor, encoding="utf-8")


def make_private(file: Path) -> None:
    """Take from others what they may do with a file of ours; other users' files stay as they are."""
    with suppress(FileNotFoundError):
        found = file.stat()
        ours = os.name == "posix" and found.st_uid == os.geteuid()
        if ours and stat.S_ISREG(found.st_mode) and found.st_mode & OTHERS:
            file.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
