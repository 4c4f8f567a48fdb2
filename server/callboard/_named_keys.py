"""API keys with names, one for each client: a file has their names and hashes, and never a key itself.

    scripts sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

A key is random and long, so that one round of SHA-256 says nothing of it. A server reads the file again when it has
changed: a line that is gone lets nobody in any more.
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

from callboard._private_files import OTHERS, create_private_file, make_private_folder, open_private_file
from callboard.errors import SettingsError

KEY_BYTES = 32
KEY_PREFIX = "cb-"
"""The beginning of the keys that are made here, by which people and scanners of sources know one."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LINE = re.compile(rf"({_NAME.pattern})\s+sha256:([0-9a-f]{{64}})")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key by its name, and by the hash that it has in hex."""

    name: str
    digest: str

    def line(self) -> str:
        """Return it as the file has it."""
        return f"{self.name} sha256:{self.digest}\n"


class KeysFile:
    """The keys of a file, read again whenever that has changed. One that cannot be used has no key, and says so once.

    Raises `SettingsError` where it cannot be used to begin with.
    """

    def __init__(self, file: Path) -> None:
        self._file = file.expanduser()
        self._seen = _look_at(self._file)
        self._keys = read_named_keys(self._file)

    def find_name(self, key: str) -> str | None:
        """Return the name of a key, None where it is none of these."""
        self._read_again_if_changed()
        digest = _hash(key)
        found: str | None = None
        for one in self._keys:
            # All of them, each in constant time.
            if hmac.compare_digest(one.digest, digest):
                found = one.name
        return found

    def find_digest(self, name: str) -> str | None:
        """Return the hash of the key of that name, None where there is none, or none any more."""
        self._read_again_if_changed()
        return next((one.digest for one in self._keys if one.name == name), None)

    def _read_again_if_changed(self) -> None:
        now = _look_at(self._file)
        if now == self._seen:
            return
        self._seen = now
        try:
            self._keys = read_named_keys(self._file)
        except SettingsError as error:
            self._keys = ()
            _log.error("api_keys_refused", reason=str(error))
        else:
            _log.info("api_keys_read", names=[one.name for one in self._keys])


def read_named_keys(file: Path) -> Sequence[NamedKey]:
    """Return the keys of a file.

    Raises `SettingsError` where there is none, where others may read or write it, and for a line that is no key's.
    """
    try:
        with open_private_file(file) as opened:
            found = os.fstat(opened.fileno())
            lines = opened.read().splitlines()
    except FileNotFoundError as error:
        raise SettingsError(
            f"CALLBOARD_API_KEYS_FILE: {file} cannot be read (it is not there): `callboard key --add NAME` makes it"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise SettingsError(
            f"CALLBOARD_API_KEYS_FILE: {file} cannot be read ({reason}): name another, or move it away, and "
            "`callboard key --add NAME` makes one"
        ) from error
    if os.name == "posix" and found.st_mode & OTHERS:
        raise SettingsError(f"CALLBOARD_API_KEYS_FILE: others may read or write {file}: `chmod 600 {file}`")
    if os.name == "posix" and found.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        raise SettingsError(f"CALLBOARD_API_KEYS_FILE: {file} was put there by another user")
    keys: list[NamedKey] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        read = _LINE.fullmatch(line.strip())
        where = f"CALLBOARD_API_KEYS_FILE: {file}, line {number}"
        # The line is not repeated: it may hold a key.
        if read is None:
            raise SettingsError(f"{where}: write NAME sha256:HASH, or # before it")
        if any(one.name == read[1] for one in keys):
            raise SettingsError(f"{where}: there are two keys {read[1]!r}")
        keys.append(NamedKey(read[1], read[2]))
    return tuple(keys)


def add_named_key(file: Path, name: str) -> str:
    """Make a key, put its hash into the file, and return the key: nobody can read it anywhere afterwards.

    Raises `SettingsError` where the name is taken or cannot be one, and where the file cannot be used.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError("a key's name has 1 to 64 letters, digits and . _ -")
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    with _changing(file) as keys:
        if any(one.name == name for one in keys):
            raise SettingsError(f"there is a key {name!r} already: `callboard key --remove {name}` takes it away")
        keys.append(NamedKey(name, _hash(key)))
    return key


def remove_named_key(file: Path, name: str) -> None:
    """Take a key away; raises `SettingsError` where there is none of that name, and where the file cannot be used."""
    with _changing(file) as keys:
        left = [one for one in keys if one.name != name]
        if len(left) == len(keys):
            raise SettingsError(f"there is no key {name!r} in {file}")
        keys[:] = left


@contextmanager
def _changing(file: Path) -> Iterator[list[NamedKey]]:
    """Yield the keys of a file, and put those that are left into its place, all at once; others wait for that."""
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
            new.writelines(one.line() for one in keys)
        # A server that reads it now has the old ones or the new ones.
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _look_at(file: Path) -> tuple[int, ...] | None:
    """Return what changes with a file; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
