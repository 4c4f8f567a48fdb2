"""Named API keys, one for each client. A file has their names and hashes, but no keys.

    scripts sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

The keys are long and random, so one round of SHA-256 protects them. A server reads the file again when it has changed,
so a key whose line is removed is refused.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from callboard._private_files import create_private_file, make_private_folder, read_private_file
from callboard.errors import SettingsError

KEY_BYTES = 32
KEY_PREFIX = "cb-"
"""Prefix of new keys, by which people and secret scanners recognise them."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LINE = re.compile(rf"({_NAME.pattern})\s+sha256:([0-9a-f]{{64}})")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key's name and its SHA-256 in hex."""

    name: str
    digest: str

    def line(self) -> str:
        """Return the key's line of the file."""
        return f"{self.name} sha256:{self.digest}\n"


class KeysFile:
    """The keys of a file, which is read again when it has changed.

    Raises `SettingsError` if the file cannot be used at first. If it cannot be used later, it has no keys, and the
    reason is logged once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.expanduser()
        self._stamp = _read_stamp(self._file)
        self._keys = read_named_keys(self._file)

    def find_name(self, key: str) -> str | None:
        """Return the name of a key; None if it is not in the file."""
        self._read_again_if_changed()
        digest = _hash(key)
        found: str | None = None
        for named in self._keys:
            # Each comparison takes the same time, so that a client cannot guess keys from the duration.
            if hmac.compare_digest(named.digest, digest):
                found = named.name
        return found

    def find_digest(self, name: str) -> str | None:
        """Return the hash of the key with this name; None if there is none."""
        self._read_again_if_changed()
        return next((named.digest for named in self._keys if named.name == name), None)

    def _read_again_if_changed(self) -> None:
        stamp = _read_stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = read_named_keys(self._file)
        except SettingsError as error:
            self._keys = ()
            _log.error("api_keys_refused", reason=str(error))
        else:
            _log.info("api_keys_read", names=[named.name for named in self._keys])


def read_named_keys(file: Path) -> Sequence[NamedKey]:
    """Return the keys of a file.

    Raises `SettingsError` if the file is missing, if others can read or write it, and for a line that is not a key's.
    """
    try:
        lines = read_private_file(file).splitlines()
    except FileNotFoundError as error:
        raise SettingsError(
            f"CALLBOARD_API_KEYS_FILE: {file} cannot be read (it does not exist): `callboard key --add NAME` makes it"
        ) from error
    except OSError as error:
        raise SettingsError(
            f"CALLBOARD_API_KEYS_FILE: {file} cannot be used ({error.strerror}): correct that, or move the file away, "
            "and `callboard key --add NAME` makes a new one"
        ) from error
    keys: list[NamedKey] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        read = _LINE.fullmatch(line.strip())
        where = f"CALLBOARD_API_KEYS_FILE: {file}, line {number}"
        # The line is not shown, because it may contain a key.
        if read is None:
            raise SettingsError(f"{where}: write NAME sha256:HASH, or # before it")
        if any(named.name == read[1] for named in keys):
            raise SettingsError(f"{where}: a second key {read[1]!r}: remove one of the two lines")
        keys.append(NamedKey(read[1], read[2]))
    return tuple(keys)


def add_named_key(file: Path, name: str) -> str:
    """Make a key, write its hash into the file, and return the key, which is stored nowhere.

    Raises `SettingsError` if the name is in use or invalid, or if the file cannot be used.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError("a key's name has 1 to 64 letters, digits and . _ -")
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    with _changing(file) as keys:
        if any(named.name == name for named in keys):
            raise SettingsError(f"there is already a key {name!r}: `callboard key --remove {name}` removes it")
        keys.append(NamedKey(name, _hash(key)))
    return key


def remove_named_key(file: Path, name: str) -> None:
    """Remove a key; raises `SettingsError` if there is no key of this name, or if the file cannot be used."""
    with _changing(file) as keys:
        left = [named for named in keys if named.name != name]
        if len(left) == len(keys):
            raise SettingsError(f"there is no key {name!r} in {file}")
        keys[:] = left


@contextmanager
def _changing(file: Path) -> Iterator[list[NamedKey]]:
    """Yield the keys of a file as a list, and replace the file by the changed list. Other processes wait."""
    file = file.expanduser()
    try:
        make_private_folder(file.parent)
        with _locked(file.parent):
            keys = list(read_named_keys(file)) if file.exists() else []
            yield keys
            _replace(file, keys)
    except OSError as error:
        raise SettingsError(f"CALLBOARD_API_KEYS_FILE: {file} cannot be written ({error.strerror})") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(file: Path, keys: Sequence[NamedKey]) -> None:
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(create_private_file(draft), "w", encoding="ascii") as new:
            new.writelines(named.line() for named in keys)
        # Atomic: a server reads either the old file or the new one.
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _read_stamp(file: Path) -> tuple[int, ...] | None:
    """Return inode, size and times of a file, which change with its content; None if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
